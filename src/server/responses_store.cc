#include "server/responses_store.h"

#include <utility>

namespace gannet::server {

void ResponsesStore::keep(const std::string& response_id, std::string items) {
  if (items.size() > byte_limit_) return;
  const std::lock_guard lock(mutex_);
  bytes_ += items.size();
  list_.push_front({response_id, std::move(items)});
  by_id_[response_id] = list_.begin();
  while (bytes_ > byte_limit_) {
    bytes_ -= list_.back().items.size();
    by_id_.erase(list_.back().id);
    list_.pop_back();
  }
}

std::optional<text::Json::Array> ResponsesStore::find(const std::string& response_id) {
  std::string items;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(response_id);
    if (found == by_id_.end()) return {};
    list_.splice(list_.begin(), list_, found->second);
    items = list_.front().items;
  }
  auto parsed = text::parse_json(items);
  if (!parsed || parsed->array() == nullptr) return {};
  return std::move(*parsed->array());
}

}  // namespace gannet::server
