#include "text/unicode_classes.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "text/unicode_ranges.h"

namespace gannet::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr size_t kBlockSize = 256;

using Block = std::array<CharClass, kBlockSize>;

// Two-stage table: code points of a block of 256, blocks of equal content stored once.
struct ClassTable {
  std::array<uint16_t, kCodePoints / kBlockSize> block_of{};
  std::vector<Block> blocks;
};

ClassTable build_class_table() {
  std::vector<CharClass> flat(kCodePoints, CharClass::other);
  const auto fill = [&](std::span<const CodePointRange> ranges, CharClass char_class) {
    for (const auto [first, last] : ranges) std::fill(flat.begin() + first, flat.begin() + last + 1, char_class);
  };
  fill(kLetters, CharClass::letter);
  fill(kMarks, CharClass::mark);
  fill(kNumbers, CharClass::number);
  fill(kPunctuation, CharClass::punctuation);
  fill(kSymbols, CharClass::symbol);
  fill(kWhiteSpace, CharClass::white_space);

  ClassTable table;
  std::map<Block, uint16_t> known;
  for (size_t index = 0; index < table.block_of.size(); ++index) {
    Block block{};
    for (size_t i = 0; i < kBlockSize; ++i) block[i] = flat[index * kBlockSize + i];
    const auto [entry, is_new] = known.try_emplace(block, static_cast<uint16_t>(table.blocks.size()));
    if (is_new) table.blocks.push_back(block);
    table.block_of[index] = entry->second;
  }
  return table;
}

}  // namespace

CharClass char_class(char32_t code_point) {
  static const ClassTable table = build_class_table();
  if (code_point >= kCodePoints) return CharClass::other;
  return table.blocks[table.block_of[code_point / kBlockSize]][code_point % kBlockSize];
}

}  // namespace gannet::text
