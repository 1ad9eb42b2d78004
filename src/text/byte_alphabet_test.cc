#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace gannet::text {
namespace {

TEST(ByteAlphabet, SpellsEveryByteDifferentlyAndBack) {
  std::set<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = spell_byte(static_cast<unsigned char>(byte));
    spellings.insert(spelling);
    EXPECT_EQ(spelled_bytes(spelling), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(spellings.size(), 256u);
}

TEST(ByteAlphabet, KnownSpellings) {
  EXPECT_EQ(spell_byte('A'), "A");
  EXPECT_EQ(spell_byte(0x00), "Ā");
  EXPECT_EQ(spell_byte('\n'), "Ċ");
  EXPECT_EQ(spell_byte(' '), "Ġ");
  EXPECT_EQ(spell_byte(0x7F), "ġ");
  EXPECT_EQ(spell_byte(0xAD), "Ń");
  EXPECT_EQ(spell_byte(0xFF), "ÿ");
}

TEST(ByteAlphabet, OtherCharactersStandForNothing) {
  EXPECT_EQ(spelled_bytes("Ġé"), std::string(" \xE9"));
  EXPECT_EQ(spelled_bytes("a b"), std::nullopt);
  EXPECT_EQ(spelled_bytes("\u00AD"), std::nullopt);
  EXPECT_EQ(spelled_bytes("<｜User｜>"), std::nullopt);
}

}  // namespace
}  // namespace gannet::text
