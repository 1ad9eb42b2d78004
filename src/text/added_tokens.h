#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gannet::text {

// Finds added tokens in raw text.
class AddedTokens {
 public:
  struct Match {
    size_t begin;  // bytes, half open
    size_t end;
    int32_t id;
  };

  // (text, id) of every added token; texts are distinct and not empty.
  explicit AddedTokens(std::vector<std::pair<std::string, int32_t>> tokens);

  // The leftmost match in text[from, end), the longest of those that begin there.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t begin) const;

  std::vector<std::pair<std::string, int32_t>> tokens_;  // ascending by bytes
  std::array<bool, 256> begins_token_{};                 // by first byte
};

}  // namespace gannet::text
