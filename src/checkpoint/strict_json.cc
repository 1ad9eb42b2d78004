#include "checkpoint/strict_json.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace gannet {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr size_t kShownCharacters = 80;

// Watches the parser's events for what nlohmann itself lets pass.
class Watcher {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth && fault_.empty()) fault_ = fmt::format("is nested deeper than {} levels", kMaxDepth);
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second && fault_.empty()) fault_ = fmt::format("has the key '{}' twice", key);
        break;
      }
      default:
        break;
    }
    // Once there is a fault nothing more is kept: deep nesting must not cost memory.
    return fault_.empty();
  }
  const std::string& fault() const { return fault_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string fault_;
};

}  // namespace

Result<json> parse_strict_json(std::string_view text, std::string_view name) {
  Watcher watcher;
  json value;
  try {
    value = json::parse(text, std::ref(watcher));
  } catch (const json::exception& error) {
    std::string_view reason = error.what();
    if (const auto prefix = reason.find("] "); prefix != std::string_view::npos) reason.remove_prefix(prefix + 2);
    return invalid_input("{}: is not valid JSON: {}", name, reason);
  }
  if (!watcher.fault().empty()) return invalid_input("{}: {}", name, watcher.fault());
  return value;
}

std::string shown(const json& value) {
  auto text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= kShownCharacters) return text;
  size_t end = kShownCharacters;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

}  // namespace gannet
