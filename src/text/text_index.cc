#include "text/text_index.h"

#include <bit>
#include <functional>

namespace gannet::text {
namespace {

uint32_t hash_of(std::string_view text) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(text));
}

}  // namespace

TextIndex::TextIndex(size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}

bool TextIndex::insert(std::string_view text, int32_t id) {
  const uint32_t hash = hash_of(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id != kNone) return false;
  slot = {text, hash, id};
  return true;
}

int32_t TextIndex::find(std::string_view text) const {
  return slots_[slot_of(text, hash_of(text))].id;
}

size_t TextIndex::slot_of(std::string_view text, uint32_t hash) const {
  size_t index = hash & (slots_.size() - 1);
  while (slots_[index].id != kNone && (slots_[index].hash != hash || slots_[index].text != text)) {
    index = (index + 1) & (slots_.size() - 1);
  }
  return index;
}

}  // namespace gannet::text
