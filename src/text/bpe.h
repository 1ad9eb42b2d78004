#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gannet::text {

// What two neighbouring tokens become, and how early: pairs of lower rank are merged first.
struct Merge {
  static constexpr int32_t kNone = -1;
  int32_t rank = kNone;
  int32_t id = kNone;
};

// Merges by pair of ids: open addressing, at most half full.
class MergeTable {
 public:
  // Room for `count` merges; inserting more is an error of the caller.
  explicit MergeTable(size_t count);

  // False if the pair is in the table already. Ids are not negative.
  bool insert(int32_t left, int32_t right, Merge merge);
  // Rank kNone if the pair does not merge.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  size_t first_slot(uint64_t pair) const;

  std::vector<Slot> slots_;
  int shift_ = 0;
};

// Byte-pair encoding of single pre-tokens.
class Bpe {
 public:
  // `byte_ids`: the id of every single byte.
  Bpe(const std::array<int32_t, 256>& byte_ids, MergeTable merges) : byte_ids_(byte_ids), merges_(std::move(merges)) {}

  // Memory that one caller reuses between pieces.
  class Workspace;

  // Appends the ids of `piece` (shorter than 2^31 bytes): starting from single bytes, the pair of lowest rank,
  // leftmost of several, is merged until none is left. O(n log n).
  void encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
};

class Bpe::Workspace {
  friend class Bpe;

  // A token of the piece, in a doubly linked list by index.
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
    Merge with_next;  // rank kNone if there is nothing to merge, or if this symbol has been merged away
  };
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> queue_;  // min-heap of rank << 32 | symbol index
};

}  // namespace gannet::text
