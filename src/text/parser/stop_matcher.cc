#include "text/parser/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace gannet::text {
namespace {

// The longest prefix of `text` that ends what has matched so far, `length` bytes, followed by `byte`.
size_t advance(std::string_view text, const std::vector<size_t>& fallback, size_t length, char byte) {
  while (length > 0 && text[length] != byte) length = fallback[length];
  return text[length] == byte ? length + 1 : 0;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    Stop stop{text, std::vector<size_t>(text.size() + 1, 0), 0};
    for (size_t end = 1; end < text.size(); ++end) {
      stop.fallback[end + 1] = advance(text, stop.fallback, stop.fallback[end], text[end]);
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  for (const char byte : text) {
    pending_ += byte;
    for (Stop& stop : stops_) {
      stop.length = advance(stop.text, stop.fallback, stop.length, byte);
      if (stop.length < stop.text.size()) continue;
      matched_ = stop.text;
      pending_.resize(pending_.size() - stop.length);
      return std::exchange(pending_, {});
    }
  }
  size_t open = 0;
  for (const Stop& stop : stops_) open = std::max(open, stop.length);
  std::string certain = pending_.substr(0, pending_.size() - open);
  pending_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::finish() {
  for (Stop& stop : stops_) stop.length = 0;
  return std::exchange(pending_, {});
}

}  // namespace gannet::text
