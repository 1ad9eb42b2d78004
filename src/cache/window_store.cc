#include "cache/window_store.h"

namespace gannet {

WindowStore::WindowStore(int64_t bytes, int64_t count)
    : bytes_(bytes), memory_(new std::byte[static_cast<size_t>(bytes * count)]), places_(count) {
  for (int64_t i = 0; i < count; ++i) release(static_cast<int32_t>(i));
}

std::optional<int32_t> WindowStore::find(const BlockHash& hash) {
  const auto found = index_.find(hash);
  if (found == index_.end()) return std::nullopt;
  touch(found->second);
  return found->second;
}

std::optional<int32_t> WindowStore::take() {
  if (order_.empty()) return std::nullopt;
  const int32_t place = order_.front();
  order_.pop_front();
  if (places_[place].hash) index_.erase(*places_[place].hash);
  places_[place].hash.reset();
  return place;
}

void WindowStore::publish(int32_t place, const BlockHash& hash) {
  if (!index_.try_emplace(hash, place).second) return release(place);
  places_[place].hash = hash;
  places_[place].turn = order_.insert(order_.end(), place);
}

void WindowStore::release(int32_t place) {
  places_[place].turn = order_.insert(order_.begin(), place);
}

void WindowStore::forget() {
  for (const auto& [hash, place] : index_) places_[place].hash.reset();
  index_.clear();
}

}  // namespace gannet
