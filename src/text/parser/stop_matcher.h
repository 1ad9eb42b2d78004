#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::text {

// Finds the stop string that ends first in text that comes in pieces; of several that end at the same place the one
// listed first.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that is certain to come before any stop string; after a match nothing more.
  std::string push(std::string_view text);
  // What was kept back because a stop string could have begun there.
  std::string finish();
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // Length of the longest end of the pending text that begins a stop string.
  size_t open_length() const;

  std::vector<std::string> stops_;
  std::string pending_;
  std::optional<std::string> matched_;
};

}  // namespace gannet::text
