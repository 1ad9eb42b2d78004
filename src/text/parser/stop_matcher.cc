#include "text/parser/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace gannet::text {

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(text);
  pending_ += text;
  size_t first_end = pending_.npos;
  for (const std::string& stop : stops_) {
    const size_t start = pending_.find(stop);
    if (start == pending_.npos || start + stop.size() >= first_end) continue;
    first_end = start + stop.size();
    matched_ = stop;
  }
  const size_t certain = matched_ ? first_end - matched_->size() : pending_.size() - open_length();
  std::string out = pending_.substr(0, certain);
  pending_.erase(0, matched_ ? pending_.size() : certain);
  return out;
}

std::string StopMatcher::finish() {
  return std::exchange(pending_, {});
}

size_t StopMatcher::open_length() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > longest; --length) {
      if (!std::string_view(pending_).ends_with(std::string_view(stop).substr(0, length))) continue;
      longest = length;
      break;
    }
  }
  return longest;
}

}  // namespace gannet::text
