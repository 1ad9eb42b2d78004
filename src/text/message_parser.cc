#include "text/message_parser.h"

#include <algorithm>
#include <utility>

#include "text/parser/call_reader.h"
#include "text/parser/markup_scanner.h"
#include "text/parser/stop_matcher.h"
#include "text/template/control_tokens.h"

namespace gannet::text {
namespace {

// How a tag begins in text mode; at the end of the stream a part of it may be all there is.
constexpr std::string_view kSpelledTagStart = "<｜DSML｜";

// The two newlines that the format puts before a block of calls.
constexpr size_t kSeparatorLength = 2;

size_t without_separator(std::string_view text, size_t start, size_t end) {
  const size_t shortest = end - start < kSeparatorLength ? start : end - kSeparatorLength;
  while (end > shortest && text[end - 1] == '\n') --end;
  return end;
}

void append(std::vector<Delta>& deltas, std::vector<Delta> more) {
  deltas.insert(deltas.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::content_filter:
      return "content_filter";
    case FinishReason::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

struct MessageParser::Impl {
  enum class State { reasoning, content, lone_call, calls, done };
  // What a '<' may begin.
  enum class Opening { none, unknown, block, cut_block, lone_call };

  explicit Impl(ParseOptions parse_options)
      : options(std::move(parse_options)), state(initial_state(options)), stop(options.stop) {}

  static State initial_state(const ParseOptions& options) {
    if (options.starts_in_tool_calls) return State::calls;
    return options.stage == ParseOptions::Stage::reasoning ? State::reasoning : State::content;
  }

  std::vector<Delta> advance() {
    deltas.clear();
    bool moved = true;
    while (moved) {
      switch (state) {
        case State::reasoning:
        case State::content:
          moved = advance_text();
          break;
        case State::lone_call:
          moved = advance_lone_call();
          break;
        case State::calls:
          moved = advance_calls();
          break;
        case State::done:
          buffer.clear();
          position = 0;
          moved = false;
          break;
      }
    }
    buffer.erase(0, position);
    position = 0;
    return std::exchange(deltas, {});
  }

  // Emits text up to what may still become markup; true if the state changed.
  bool advance_text() {
    size_t next = position;
    while (true) {
      next = buffer.find_first_of("<\xFE", next);
      if (next == buffer.npos) break;
      if (buffer[next] == kThinkEndByte) return pass_think_end(next);
      const Opening opening = options.tools ? what_opens(next) : Opening::none;
      if (opening == Opening::unknown) break;
      if (opening != Opening::none) return open(opening, next);
      ++next;
    }
    const size_t held_from = std::min(next, buffer.size());
    emit_text(options.tools && !at_end ? without_separator(buffer, position, held_from) : held_from);
    return false;
  }

  // Ends the reasoning; in content the token means nothing.
  bool pass_think_end(size_t place) {
    emit_text(place);
    position = place + 1;
    if (state == State::reasoning) at_line_start = true;
    if (state == State::reasoning) state = State::content;
    return true;
  }

  bool starts_line(size_t place) const { return place == position ? at_line_start : buffer[place - 1] == '\n'; }

  Opening what_opens(size_t place) const {
    const std::string_view text = std::string_view(buffer).substr(place);
    const bool is_line_start = starts_line(place);
    if (state == State::reasoning && !is_line_start) return Opening::none;
    // What the end of the stream cut off was to become a call if it stands where calls stand; else it is text.
    const bool has_token = text.size() > 1 && text[1] == kDsmlByte;
    const Opening at_cut = has_token && is_line_start ? Opening::cut_block : Opening::none;
    const Opening unfinished = at_end ? at_cut : Opening::unknown;
    const TagMatch block = match_calls_open(text);
    if (block.match == Match::more) return unfinished;
    if (block.match == Match::yes) {
      const size_t inside = skip_space(text, block.length);
      if (inside - block.length > kMostTagSpace) return Opening::none;
      const std::string_view rest = text.substr(inside);
      const bool is_cut = rest.empty() || (at_end && kSpelledTagStart.starts_with(rest));
      const Match call = is_cut ? Match::more : match_invoke_word(rest).match;
      if (call == Match::yes) return Opening::block;
      if (call == Match::no) return Opening::none;
      return unfinished;
    }
    if (state == State::reasoning) return Opening::none;
    const Match lone = match_invoke_word(text).match;
    return lone == Match::yes ? Opening::lone_call : lone == Match::more ? unfinished : Opening::none;
  }

  bool open(Opening opening, size_t place) {
    const size_t text_end = without_separator(buffer, position, place);
    emit_text(text_end);
    if (state == State::done) return true;
    separator = buffer.substr(text_end, place - text_end);
    call_starts_line = starts_line(place);
    position = place;
    if (opening == Opening::lone_call) {
      state = State::lone_call;
      reader.emplace(true);
      return true;
    }
    end_content();
    if (state == State::done) return true;
    if (opening == Opening::cut_block) {
      message.unparsed_calls.push_back(spelled_out(std::string_view(buffer).substr(place)));
      state = State::done;
      return true;
    }
    position += match_calls_open(std::string_view(buffer).substr(place)).length;
    state = State::calls;
    return true;
  }

  // A call without a block around it counts once it is complete; before, it may be text about calls.
  bool advance_lone_call() {
    const CallReader::State result = reader->push(buffer, position);
    if (result == CallReader::State::open && !at_end) return false;
    if (result == CallReader::State::read) {
      end_content();
      if (state == State::done) return true;
      emit_call(reader->call());
      state = State::calls;
      reader.reset();
      return true;
    }
    if (result == CallReader::State::open && call_starts_line) {
      end_content();
      message.unparsed_calls.push_back(spelled_out(reader->raw() + buffer.substr(position)));
      state = State::done;
      return true;
    }
    std::string text = separator + reader->raw();
    // Never look at the same '<' twice.
    if (reader->raw().empty()) text += buffer[position++];
    reader.reset();
    state = State::content;
    at_line_start = text.back() == '\n';
    emit_content(text);
    return true;
  }

  // Inside a block, or after a call without one.
  bool advance_calls() {
    if (reader) return advance_call();
    if (position == buffer.size()) return false;
    const std::string_view text = std::string_view(buffer).substr(position);
    if (text[0] != '<') {
      leave_over(std::min(text.find('<'), text.size()));
      return true;
    }
    const TagMatch close = match_calls_close(text);
    const TagMatch again = match_calls_open(text);
    const TagMatch call = match_invoke_word(text);
    if (close.match == Match::yes) {
      state = State::done;
    } else if (again.match == Match::yes) {
      position += again.length;
    } else if (call.match == Match::yes) {
      reader.emplace(false);
    } else if (close.match == Match::no && again.match == Match::no && call.match == Match::no) {
      leave_over(1);
    } else if (at_end) {
      position = buffer.size();
      return false;
    } else {
      return false;
    }
    return true;
  }

  bool advance_call() {
    const CallReader::State result = reader->push(buffer, position);
    if (result == CallReader::State::open) {
      if (!at_end) return false;
      message.unparsed_calls.push_back(spelled_out(reader->raw() + buffer.substr(position)));
      state = State::done;
      return true;
    }
    if (result == CallReader::State::read) {
      emit_call(reader->call());
    } else {
      message.unparsed_calls.push_back(spelled_out(reader->raw()));
      left_over += reader->raw();
    }
    reader.reset();
    return true;
  }

  void leave_over(size_t length) {
    left_over += buffer.substr(position, length);
    position += length;
  }

  // Rather show what was not understood than answer nothing at all.
  void show_left_over() {
    if (!message.tool_calls.empty() || message.stop_sequence) return;
    size_t end = left_over.size();
    while (end > 0 && is_space(left_over[end - 1])) --end;
    const size_t start = skip_space(left_over, 0);
    if (start >= end) return;
    emit_content((message.content.empty() ? "" : "\n\n") + left_over.substr(start, end - start));
  }

  void emit_text(size_t end) {
    if (end == position) return;
    const std::string text = buffer.substr(position, end - position);
    position = end;
    at_line_start = text.back() == '\n';
    if (state == State::content) return emit_content(text);
    const std::string thought = readable(text);
    message.reasoning += thought;
    add_delta(Delta::Kind::reasoning, 0, thought);
  }

  void emit_content(const std::string& marked) {
    take_content(stop.push(readable(marked)));
    if (!stop.matched()) return;
    message.stop_sequence = *stop.matched();
    state = State::done;
  }

  // What the stop strings kept back is content after all, once the content has ended.
  void end_content() { take_content(stop.finish()); }

  void take_content(const std::string& text) {
    message.content += text;
    add_delta(Delta::Kind::content, 0, text);
  }

  void emit_call(const ParsedCall& call) {
    const int index = static_cast<int>(message.tool_calls.size());
    message.tool_calls.push_back(call);
    deltas.push_back({Delta::Kind::tool_call, index, call.name});
    deltas.push_back({Delta::Kind::arguments, index, call.arguments});
  }

  void add_delta(Delta::Kind kind, int call, const std::string& text) {
    if (text.empty()) return;
    if (!deltas.empty() && deltas.back().kind == kind && deltas.back().call == call) {
      deltas.back().text += text;
    } else {
      deltas.push_back({kind, call, text});
    }
  }

  ParseOptions options;
  State state;
  StopMatcher stop;
  MarkupLexer lexer;
  std::string buffer;  // marked text that is not used up
  size_t position = 0;
  bool at_end = false;
  bool at_line_start = true;         // whether what stands at `position` begins a line
  std::string separator;             // newlines before the call being read
  bool call_starts_line = false;     // whether that call, which has no block, begins a line
  std::optional<CallReader> reader;  // of the call being read
  std::string left_over;             // marked text inside a block that is no call
  std::vector<Delta> deltas;
  ParsedMessage message;
};

MessageParser::MessageParser(ParseOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
MessageParser::MessageParser(MessageParser&&) noexcept = default;
MessageParser& MessageParser::operator=(MessageParser&&) noexcept = default;
MessageParser::~MessageParser() = default;

std::vector<Delta> MessageParser::push(std::string_view text) {
  impl_->lexer.push(text, impl_->buffer);
  return impl_->advance();
}

std::vector<Delta> MessageParser::push_plain(std::string_view text) {
  append_unmarked(impl_->buffer, text);
  return impl_->advance();
}

std::vector<Delta> MessageParser::push_markup(Markup token) {
  impl_->buffer += token == Markup::think_end ? kThinkEndByte : kDsmlByte;
  return impl_->advance();
}

std::vector<Delta> MessageParser::push_control(std::string_view spelling) {
  append_control(impl_->buffer, spelling);
  return impl_->advance();
}

std::vector<Delta> MessageParser::finish(StopCause cause) {
  Impl& impl = *impl_;
  impl.lexer.finish(impl.buffer);
  impl.at_end = true;
  impl.deltas = impl.advance();
  impl.show_left_over();
  impl.end_content();
  ParsedMessage& message = impl.message;
  if (cause == StopCause::content_filter) {
    message.finish_reason = FinishReason::content_filter;
  } else if (!message.tool_calls.empty()) {
    message.finish_reason = FinishReason::tool_calls;
  } else {
    const bool was_cut = cause == StopCause::length && !message.stop_sequence;
    message.finish_reason = was_cut ? FinishReason::length : FinishReason::stop;
  }
  return std::exchange(impl.deltas, {});
}

bool MessageParser::done() const {
  return impl_->state == Impl::State::done;
}
bool MessageParser::in_reasoning() const {
  return impl_->state == Impl::State::reasoning;
}
const ParsedMessage& MessageParser::message() const {
  return impl_->message;
}

TokenMessageParser::TokenMessageParser(const Tokenizer& tokenizer, ParseOptions options)
    : tokenizer_(&tokenizer),
      think_end_(tokenizer.token_id(control::kThinkEnd)),
      dsml_(tokenizer.token_id(control::kDsml)),
      end_(tokenizer.token_id(control::kEnd)),
      shows_control_(options.shows_control),
      parser_(std::move(options)),
      detokenizer_(tokenizer) {}

std::vector<Delta> TokenMessageParser::push(int32_t id) {
  const auto& grounding = control::kGrounding;
  const bool is_text = !tokenizer_->is_added(id) ||
                       std::find(grounding.begin(), grounding.end(), tokenizer_->token_text(id)) != grounding.end();
  if (is_text) return parser_.push_plain(detokenizer_.push(id));
  // A character cannot go on behind a control token.
  auto deltas = parser_.push_plain(detokenizer_.finish());
  if (shows_control_ && id != end_) {
    append(deltas, parser_.push_plain(tokenizer_->token_text(id)));
    return deltas;
  }
  append(deltas, id == think_end_ ? parser_.push_markup(Markup::think_end)
                 : id == dsml_    ? parser_.push_markup(Markup::dsml)
                                  : parser_.push_control(tokenizer_->token_text(id)));
  return deltas;
}

std::vector<Delta> TokenMessageParser::finish(StopCause cause) {
  auto deltas = parser_.push_plain(detokenizer_.finish());
  append(deltas, parser_.finish(cause));
  return deltas;
}

}  // namespace gannet::text
