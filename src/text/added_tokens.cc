#include "text/added_tokens.h"

#include <algorithm>

namespace gannet::text {

AddedTokens::AddedTokens(std::vector<std::pair<std::string, int32_t>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) begins_token_[static_cast<unsigned char>(text[0])] = true;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_token_[static_cast<unsigned char>(text[begin])]) continue;
    if (auto match = longest_at(text, begin)) return match;
  }
  return std::nullopt;
}

// Narrows the sorted list byte by byte to the tokens that agree with the text so far.
std::optional<AddedTokens::Match> AddedTokens::longest_at(std::string_view text, size_t begin) const {
  std::optional<Match> longest;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; begin + depth < text.size(); ++depth) {
    // A token that ends here sorts before all that go on.
    const auto byte_at_depth = [&](const auto& token) {
      return depth < token.first.size() ? static_cast<int>(static_cast<unsigned char>(token.first[depth])) : -1;
    };
    const int wanted = static_cast<unsigned char>(text[begin + depth]);
    first = std::partition_point(first, last, [&](const auto& token) { return byte_at_depth(token) < wanted; });
    last = std::partition_point(first, last, [&](const auto& token) { return byte_at_depth(token) == wanted; });
    if (first == last) break;
    if (first->first.size() == depth + 1) longest = Match{begin, begin + depth + 1, first->second};
  }
  return longest;
}

}  // namespace gannet::text
