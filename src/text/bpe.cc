#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace gannet::text {
namespace {

constexpr int32_t kEnd = -1;  // no neighbour on that side

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t count) {
  const size_t capacity = std::bit_ceil(2 * count + 2);
  slots_.resize(capacity);
  shift_ = 64 - std::countr_zero(capacity);
}

// Fibonacci hashing: the upper bits of the product with 2^64 / golden ratio.
size_t MergeTable::first_slot(uint64_t pair) const {
  return (pair * 0x9E3779B97F4A7C15u) >> shift_;
}

bool MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_key(left, right);
  size_t index = first_slot(pair);
  while (slots_[index].pair != kEmpty) {
    if (slots_[index].pair == pair) return false;
    index = (index + 1) & (slots_.size() - 1);
  }
  slots_[index] = {pair, merge};
  return true;
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  size_t index = first_slot(pair);
  while (slots_[index].pair != kEmpty) {
    if (slots_[index].pair == pair) return slots_[index].merge;
    index = (index + 1) & (slots_.size() - 1);
  }
  return {};
}

void Bpe::encode(std::string_view piece, Workspace& workspace, std::vector<int32_t>& ids) const {
  auto& symbols = workspace.symbols_;
  auto& queue = workspace.queue_;
  symbols.clear();
  queue.clear();

  const auto length = static_cast<int32_t>(piece.size());
  for (int32_t i = 0; i < length; ++i) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(piece[i])];
    symbols.push_back({id, i - 1, i + 1 < length ? i + 1 : kEnd, {}});
  }

  const auto find_merge = [&](int32_t index) {
    auto& symbol = symbols[index];
    symbol.with_next = symbol.next == kEnd ? Merge{} : merges_.find(symbol.id, symbols[symbol.next].id);
    return symbol.with_next.rank != Merge::kNone;
  };
  const auto queue_entry = [&](int32_t index) {
    return static_cast<uint64_t>(symbols[index].with_next.rank) << 32 | static_cast<uint64_t>(index);
  };
  const auto push = [&](int32_t index) {
    queue.push_back(queue_entry(index));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };

  for (int32_t i = 0; i < length; ++i) {
    if (find_merge(i)) queue.push_back(queue_entry(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<int32_t>(queue.back() >> 32);
    const auto index = static_cast<int32_t>(queue.back() & 0xFFFFFFFF);
    queue.pop_back();
    auto& symbol = symbols[index];
    if (symbol.with_next.rank != rank) continue;  // a neighbour was merged since this entry was made

    auto& absorbed = symbols[symbol.next];
    symbol.id = symbol.with_next.id;
    symbol.next = absorbed.next;
    absorbed.with_next = {};
    if (symbol.next != kEnd) symbols[symbol.next].previous = index;
    if (find_merge(index)) push(index);
    if (symbol.previous != kEnd && find_merge(symbol.previous)) push(symbol.previous);
  }

  for (int32_t i = 0; i != kEnd && i < length; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace gannet::text
