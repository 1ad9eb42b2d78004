#include <algorithm>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace gannet::text {
namespace {

// Bytes before an unfinished character at the end.
size_t finished_length(std::string_view bytes) {
  constexpr size_t kLongestCharacter = 4;
  const size_t earliest = bytes.size() - std::min(bytes.size(), kLongestCharacter - 1);
  for (size_t position = earliest; position < bytes.size(); ++position) {
    const Utf8Unit unit = utf8_unit(bytes, position);
    if (unit.kind == Utf8Unit::Kind::unfinished) return position;
  }
  return bytes.size();
}

}  // namespace

std::string Detokenizer::push(int32_t id) {
  pending_ += tokenizer_->token_bytes(id);
  const size_t finished = finished_length(pending_);
  std::string piece;
  append_lossy_utf8(piece, std::string_view(pending_).substr(0, finished));
  pending_.erase(0, finished);
  return piece;
}

std::string Detokenizer::finish() {
  std::string piece;
  append_lossy_utf8(piece, pending_);
  pending_.clear();
  return piece;
}

}  // namespace gannet::text
