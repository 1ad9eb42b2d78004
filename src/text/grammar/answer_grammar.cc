#include "text/grammar/answer_grammar.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "text/chat_encoder.h"
#include "text/grammar/answer_rules.h"
#include "text/grammar/compile_budget.h"
#include "text/template/control_tokens.h"

namespace gannet::text {
namespace {

// Tokens of a vocabulary that the constraints need by their id.
struct SpecialTokens {
  int64_t vocab_size = 0;
  int32_t eos = 0;
  std::optional<int32_t> think_end;
  std::optional<int32_t> dsml;
};

// Texts of all tokens, as xgrammar wants them: control tokens have none, so that no text spells them. The one in the
// markup of calls needs a text to be allowed by its id; this one is no UTF-8, and grammars match nothing else.
xgrammar::TokenizerInfo tokenizer_info(const Tokenizer& tokenizer, int64_t vocab_size, const SpecialTokens& special) {
  constexpr std::string_view kUnspellable = "\xff\xfe";
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (id == special.dsml) {
      texts[id] = kUnspellable;
    } else if (!tokenizer.is_added(id)) {
      texts[id] = tokenizer.token_bytes(id);
    }
  }
  return xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                 std::vector<int32_t>{special.eos});
}

// xgrammar's messages begin with a time and a place in its source.
std::string plain_message(std::string_view message) {
  if (const size_t source = message.find(".cc:"); message.starts_with('[') && source != std::string_view::npos) {
    const size_t colon = message.find(": ", source);
    if (colon != std::string_view::npos) message.remove_prefix(colon + 2);
  }
  constexpr size_t kLongest = 300;
  std::string plain(message.substr(0, std::min(message.find('\n'), kLongest)));
  return plain;
}

// Bits behind the last id.
void clear_padding(std::span<uint32_t> mask, const SpecialTokens& special) {
  if (const auto rest = special.vocab_size % 32; rest != 0) mask.back() &= (uint32_t{1} << rest) - 1;
}

class AnswerConstraint : public TokenConstraint {
 public:
  AnswerConstraint(const xgrammar::CompiledGrammar& grammar, const SpecialTokens& special, bool reasons)
      : matcher_(grammar, std::nullopt, false, 0), special_(special), reasoning_(reasons) {}

  // The start of the answer, which stands in the prompt already; false if the grammar has no such answer.
  bool begin(const std::string& text) { return text.empty() || matcher_.AcceptString(text); }

  bool active() const override { return true; }

  void fill_mask(std::span<uint32_t> mask) override {
    if (reasoning_) {
      fill_reasoning(mask);
    } else {
      fill_answer(mask);
    }
    clear_padding(mask, special_);
  }

  void accept(int32_t id) override {
    if (reasoning_) {
      reasoning_ = id != special_.think_end;
      return;
    }
    if (ended_) return;
    try {
      ended_ = !matcher_.AcceptToken(id) || matcher_.IsTerminated();
    } catch (const std::exception& error) {
      give_up(error);
    }
  }

 private:
  void fill_reasoning(std::span<uint32_t> mask) const {
    std::fill(mask.begin(), mask.end(), ~0U);
    for (const auto id : {std::optional(special_.eos), special_.dsml}) {
      if (id) mask[*id / 32] &= ~(uint32_t{1} << (*id % 32));
    }
  }

  void fill_answer(std::span<uint32_t> mask) {
    if (ended_) return allow_end(mask);
    auto size = static_cast<int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    try {
      matcher_.FillNextTokenBitmask(&tensor);
    } catch (const std::exception& error) {
      give_up(error);
    }
    const bool stuck = std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
    if (ended_ || stuck) allow_end(mask);
  }

  void allow_end(std::span<uint32_t> mask) const {
    std::fill(mask.begin(), mask.end(), 0U);
    mask[special_.eos / 32] = uint32_t{1} << (special_.eos % 32);
  }

  void give_up(const std::exception& error) {
    spdlog::error("a grammar failed in the middle of an answer, which ends here: {}", plain_message(error.what()));
    ended_ = true;
  }

  xgrammar::GrammarMatcher matcher_;
  SpecialTokens special_;
  bool reasoning_;
  bool ended_ = false;  // nothing but the end may come
};

// Reasoning is free but for calls, and text is free. The block of calls that opens with "<" and the token of the markup
// is held to the grammar, which begins with the block, from that token on.
class FirstCallConstraint : public TokenConstraint {
 public:
  FirstCallConstraint(const xgrammar::CompiledGrammar& grammar, const SpecialTokens& special, bool reasons,
                      const Tokenizer& tokenizer)
      : calls_(grammar, special, false), special_(special), tokenizer_(tokenizer), reasoning_(reasons) {}

  // The start of the answer, which stands in the prompt already.
  void begin(std::string_view text) { tag_opens_ = text.ends_with('<'); }

  bool active() const override { return in_calls_ || (reasoning_ && tag_opens_); }

  void fill_mask(std::span<uint32_t> mask) override {
    if (in_calls_) return calls_.fill_mask(mask);
    std::fill(mask.begin(), mask.end(), ~0U);
    if (reasoning_ && special_.dsml) mask[*special_.dsml / 32] &= ~(uint32_t{1} << (*special_.dsml % 32));
    clear_padding(mask, special_);
  }

  void accept(int32_t id) override {
    if (!in_calls_ && !reasoning_ && tag_opens_ && id == special_.dsml) in_calls_ = calls_.begin("\n\n<");
    if (in_calls_) return calls_.accept(id);
    if (id == special_.think_end) reasoning_ = false;
    tag_opens_ = id < tokenizer_.vocab_size() && !tokenizer_.is_added(id) && tokenizer_.token_bytes(id).ends_with('<');
  }

 private:
  AnswerConstraint calls_;
  SpecialTokens special_;
  const Tokenizer& tokenizer_;
  bool reasoning_;
  bool tag_opens_ = false;
  bool in_calls_ = false;
};

}  // namespace

struct GrammarCompiler::Impl {
  Impl(const Tokenizer& tokenizer, int64_t vocab_size, int32_t eos, Options wanted)
      : options(wanted),
        text(tokenizer),
        special{vocab_size, eos, tokenizer.token_id(control::kThinkEnd), tokenizer.token_id(control::kDsml)},
        compiler(tokenizer_info(tokenizer, vocab_size, special), 1, false) {}

  // From the cache, or new.
  Result<xgrammar::CompiledGrammar> compiled(const std::string& ebnf);
  Result<xgrammar::CompiledGrammar> build(const std::string& ebnf);
  std::optional<xgrammar::CompiledGrammar> look_up(const std::string& ebnf);
  void keep(const std::string& ebnf, const xgrammar::CompiledGrammar& grammar);

  struct Entry {
    std::string ebnf;
    xgrammar::CompiledGrammar grammar;
    size_t bytes = 0;
  };

  const Options options;
  const Tokenizer& text;
  const SpecialTokens special;
  xgrammar::GrammarCompiler compiler;

  std::mutex mutex;
  std::list<Entry> entries;  // last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_ebnf;
  size_t bytes = 0;
  std::condition_variable done;
  int compiling = 0;
};

std::optional<xgrammar::CompiledGrammar> GrammarCompiler::Impl::look_up(const std::string& ebnf) {
  const auto found = by_ebnf.find(ebnf);
  if (found == by_ebnf.end()) return {};
  entries.splice(entries.begin(), entries, found->second);
  return entries.front().grammar;
}

void GrammarCompiler::Impl::keep(const std::string& ebnf, const xgrammar::CompiledGrammar& grammar) {
  if (by_ebnf.contains(ebnf)) return;
  entries.push_front({ebnf, grammar, grammar.MemorySizeBytes() + ebnf.size()});
  by_ebnf.emplace(entries.front().ebnf, entries.begin());
  bytes += entries.front().bytes;
  while (bytes > options.cache_bytes && entries.size() > 1) {
    bytes -= entries.back().bytes;
    by_ebnf.erase(entries.back().ebnf);
    entries.pop_back();
  }
}

Result<xgrammar::CompiledGrammar> GrammarCompiler::Impl::build(const std::string& ebnf) {
  try {
    const grammar::CompileBudget budget(options.budget);
    return compiler.CompileGrammar(ebnf);
  } catch (const grammar::BudgetExceeded&) {
    return invalid_input("it takes more than {} ms to prepare; make it smaller, with shorter limits",
                         options.budget.count());
  } catch (const std::exception& error) {
    return invalid_input("it cannot be compiled: {}", plain_message(error.what()));
  }
}

Result<xgrammar::CompiledGrammar> GrammarCompiler::Impl::compiled(const std::string& ebnf) {
  constexpr int kMostAtOnce = 2;
  std::unique_lock lock(mutex);
  if (auto known = look_up(ebnf)) return *std::move(known);
  if (!done.wait_for(lock, options.patience, [&] { return compiling < kMostAtOnce; })) {
    return tl::unexpected(Error{ErrorKind::overloaded, "too many grammars are being prepared; try again later"});
  }
  if (auto known = look_up(ebnf)) return *std::move(known);
  ++compiling;
  lock.unlock();
  auto grammar = build(ebnf);
  lock.lock();
  --compiling;
  done.notify_all();
  if (grammar) keep(ebnf, *grammar);
  return grammar;
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, int32_t eos, Options options)
    : impl_(std::make_unique<Impl>(tokenizer, vocab_size, eos, options)) {}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, int32_t eos)
    : GrammarCompiler(tokenizer, vocab_size, eos, Options{}) {}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<TokenConstraint>> GrammarCompiler::constrain(const ChatRequest& request) {
  GANNET_TRY(const grammar::AnswerRules rules, grammar::answer_rules(request, impl_->special.dsml));
  if (rules.ebnf.empty()) return nullptr;
  auto compiled = impl_->compiled(rules.ebnf);
  if (!compiled) {
    return tl::unexpected(Error{compiled.error().kind, fmt::format("{}: {}", rules.field, compiled.error().message)});
  }
  const ParseOptions parse = parse_options(request);
  const bool reasons = parse.stage == ParseOptions::Stage::reasoning && impl_->special.think_end;
  // The message that the prompt ends with goes on.
  const bool continues = !request.messages.empty() && request.messages.back().prefix && !reasons;
  const std::string begun = continues ? request.messages.back().content : std::string();
  if (rules.from_first_call) {
    auto constraint = std::make_shared<FirstCallConstraint>(*compiled, impl_->special, reasons, impl_->text);
    constraint->begin(begun);
    return constraint;
  }
  auto constraint = std::make_shared<AnswerConstraint>(*compiled, impl_->special, reasons);
  if (!constraint->begin(begun)) {
    return invalid_input("messages: the last one begins the answer in a way that {} does not allow", rules.field);
  }
  return constraint;
}

}  // namespace gannet::text
