#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gannet::text {

// Ids by text: open addressing, at most half full. Keeps views only: the texts must outlive it, at their addresses.
class TextIndex {
 public:
  static constexpr int32_t kNone = -1;

  // Room for `count` texts; inserting more is an error of the caller.
  explicit TextIndex(size_t count);

  // False if the text is in the index already.
  bool insert(std::string_view text, int32_t id);
  // kNone if there is no such text.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    std::string_view text;
    uint32_t hash = 0;
    int32_t id = kNone;
  };

  // Slot of the text, or the free one where it belongs.
  size_t slot_of(std::string_view text, uint32_t hash) const;

  std::vector<Slot> slots_;
};

}  // namespace gannet::text
