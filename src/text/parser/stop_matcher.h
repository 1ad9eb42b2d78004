#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::text {

// Finds the stop string that ends first in text that comes in pieces; of several that end at the same place the one
// listed first. Linear in the text (Knuth, Morris, Pratt), whatever the strings are.
class StopMatcher {
 public:
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Text that is certain to come before any stop string; after a match nothing more.
  std::string push(std::string_view text);
  // What was kept back because a stop string could have begun there.
  std::string finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [length]: longest proper prefix of the first `length` bytes that also ends them
    size_t length = 0;             // how much of it the text so far ends with
  };

  std::vector<Stop> stops_;
  std::string pending_;
  std::optional<std::string> matched_;
};

}  // namespace gannet::text
