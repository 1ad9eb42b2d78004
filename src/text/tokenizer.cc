#include "text/tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

// Positions within a pre-token are 32 bits wide.
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

AddedTokens added_tokens_of(const std::vector<Token>& tokens) {
  std::vector<std::pair<std::string, int32_t>> added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].is_added) added.emplace_back(tokens[id].text, static_cast<int32_t>(id));
  }
  return AddedTokens(std::move(added));
}

Status check_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return invalid_input("text has {} bytes; at most {} can be encoded", text.size(), kMaxTextBytes);
  }
  const size_t valid = valid_utf8_length(text);
  if (valid == text.size()) return {};
  return invalid_input("text is not UTF-8: the byte 0x{:02X} at byte offset {} begins no valid character",
                       static_cast<unsigned char>(text[valid]), valid);
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerData data)
      : tokens(std::move(data.tokens)),
        id_of(std::move(data.id_of)),
        added(added_tokens_of(tokens)),
        bpe(data.byte_ids, std::move(data.merges)),
        whole_piece(tokens.size()) {
    Bpe::Workspace workspace;
    std::vector<int32_t> ids;
    for (size_t id = 0; id < tokens.size(); ++id) {
      longest = std::max(longest, tokens[id].bytes.size());
      if (tokens[id].is_added) continue;
      ids.clear();
      bpe.encode(tokens[id].bytes, workspace, ids);
      if (ids.size() == 1 && ids[0] == static_cast<int32_t>(id)) whole_piece.insert(tokens[id].bytes, ids[0]);
    }
  }

  const Token* token(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens.size() ? &tokens[static_cast<size_t>(id)] : nullptr;
  }

  void append_plain(std::string_view text, Bpe::Workspace& workspace, std::vector<int32_t>& ids) const {
    for (const std::string_view piece : pre_tokenize(text)) {
      if (const int32_t id = whole_piece.find(piece); id != TextIndex::kNone) {
        ids.push_back(id);
      } else {
        bpe.encode(piece, workspace, ids);
      }
    }
  }

  std::vector<Token> tokens;
  TextIndex id_of;  // by text
  AddedTokens added;
  Bpe bpe;
  TextIndex whole_piece;  // by bytes: the tokens into which their own bytes merge, so that most words need one look-up
  size_t longest = 1;     // bytes of a token
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(tokenizer_json, status)) {
    return invalid_input("{}: no such file; it must be a tokenizer.json", tokenizer_json.string());
  }
  simdjson::padded_string json;
  if (simdjson::padded_string::load(tokenizer_json.string()).get(json) != simdjson::SUCCESS) {
    return invalid_input("{}: cannot be read; check its permissions", tokenizer_json.string());
  }
  return parse(json, tokenizer_json.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) {
  GANNET_TRY(auto data, read_tokenizer_json(json, name));
  return Tokenizer(std::make_unique<Impl>(std::move(data)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  GANNET_TRY_STATUS(check_text(text));
  std::vector<int32_t> ids;
  Bpe::Workspace workspace;
  size_t position = 0;
  while (const auto match = impl_->added.find(text, position)) {
    impl_->append_plain(text.substr(position, match->begin - position), workspace, ids);
    ids.push_back(match->id);
    position = match->end;
  }
  impl_->append_plain(text.substr(position), workspace, ids);
  return ids;
}

Result<std::vector<int32_t>> Tokenizer::encode_plain(std::string_view text) const {
  GANNET_TRY_STATUS(check_text(text));
  std::vector<int32_t> ids;
  Bpe::Workspace workspace;
  impl_->append_plain(text, workspace, ids);
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  const Token* token = impl_->token(id);
  return token ? std::string_view(token->bytes) : std::string_view();
}

std::string_view Tokenizer::token_text(int32_t id) const {
  const Token* token = impl_->token(id);
  return token ? std::string_view(token->text) : std::string_view();
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Token* token = impl_->token(ids[i]);
    if (!token) {
      return invalid_input("id {} at position {} is not in the vocabulary; ids must be 0 to {}", ids[i], i,
                           vocab_size() - 1);
    }
    bytes += token->bytes;
  }
  if (valid_utf8_length(bytes) == bytes.size()) return bytes;
  std::string text;
  append_lossy_utf8(text, bytes);
  return text;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view text) const {
  const int32_t id = impl_->id_of.find(text);
  return id == TextIndex::kNone ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_added(int32_t id) const {
  const Token* token = impl_->token(id);
  return token && token->is_added;
}

size_t Tokenizer::longest_token() const {
  return impl_->longest;
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->tokens.size());
}

}  // namespace gannet::text
