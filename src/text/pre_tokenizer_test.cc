#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace gannet::text {
namespace {

using ::testing::ElementsAre;

TEST(PreTokenizer, Words) {
  EXPECT_THAT(pre_tokenize(""), ElementsAre());
  EXPECT_THAT(pre_tokenize("Hello, world!"), ElementsAre("Hello", ",", " world", "!"));
  EXPECT_THAT(pre_tokenize("don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(pre_tokenize("_x=f(a)"), ElementsAre("_x", "=f", "(a", ")"));
  EXPECT_THAT(pre_tokenize("#étude"), ElementsAre("#", "étude"));  // only ASCII letters follow a punctuation mark
  EXPECT_THAT(pre_tokenize("\u00A0word\tword"), ElementsAre("\u00A0word", "\tword"));
  EXPECT_THAT(pre_tokenize("e\u0301\u0302x"), ElementsAre("e\u0301\u0302x"));
}

TEST(PreTokenizer, NumbersInThrees) {
  EXPECT_THAT(pre_tokenize("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(pre_tokenize("3.14159"), ElementsAre("3", ".", "141", "59"));
  EXPECT_THAT(pre_tokenize("a1b"), ElementsAre("a", "1", "b"));
  EXPECT_THAT(pre_tokenize(" 12"), ElementsAre(" ", "12"));
  EXPECT_THAT(pre_tokenize("½²Ⅷ٣"), ElementsAre("½²Ⅷ", "٣"));
}

TEST(PreTokenizer, HanAndKanaStandAlone) {
  EXPECT_THAT(pre_tokenize("ab日本語テストcd"), ElementsAre("ab", "日本語テスト", "cd"));
  EXPECT_THAT(pre_tokenize("カ゛カ"),
              ElementsAre("カ", "゛", "カ"));  // U+309B is a symbol in the second pattern's range
  EXPECT_THAT(pre_tokenize(" 日"), ElementsAre(" ", "日"));
  EXPECT_THAT(pre_tokenize("龥龦"), ElementsAre("龥", "龦"));  // the range ends at U+9FA5
  EXPECT_THAT(pre_tokenize("한국어"), ElementsAre("한국어"));
}

TEST(PreTokenizer, SymbolsTakeOneSpaceBeforeAndLineBreaksAfter) {
  EXPECT_THAT(pre_tokenize("a +=\r\n\nb"), ElementsAre("a", " +=\r\n\n", "b"));
  EXPECT_THAT(pre_tokenize("  !"), ElementsAre(" ", " !"));
  EXPECT_THAT(pre_tokenize("\t!"), ElementsAre("\t", "!"));
  EXPECT_THAT(pre_tokenize("🙂🙂 🙂"), ElementsAre("🙂🙂", " 🙂"));
}

TEST(PreTokenizer, WhiteSpace) {
  EXPECT_THAT(pre_tokenize("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pre_tokenize("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pre_tokenize("a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(pre_tokenize("\n\r"), ElementsAre("\n\r"));
  EXPECT_THAT(pre_tokenize("   1"),
              ElementsAre("   ", "1"));  // the number is another piece: nothing follows the spaces
  EXPECT_THAT(pre_tokenize("\u3000\u2003x"), ElementsAre("\u3000", "\u2003x"));
  EXPECT_THAT(pre_tokenize(" \u00A0!"), ElementsAre(" ", "\u00A0", "!"));
}

TEST(PreTokenizer, UnmatchedStretchesArePiecesToo) {
  EXPECT_THAT(pre_tokenize("\x01\x02!"), ElementsAre("\x01\x02", "!"));
  EXPECT_THAT(pre_tokenize("\x01\x02word"), ElementsAre("\x01", "\x02word"));
  EXPECT_THAT(pre_tokenize("\x1C\x1D a"), ElementsAre("\x1C\x1D", " a"));  // no white space here
  EXPECT_THAT(pre_tokenize("!\u180E\u200B "), ElementsAre("!", "\u180E\u200B", " "));
}

// Each of these would take minutes if a run were scanned again for every piece.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
  const size_t count = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(pre_tokenize(std::string(count, ' ')).size(), 1u);
  EXPECT_EQ(pre_tokenize(std::string(count, ' ') + "x").size(), 2u);
  EXPECT_EQ(pre_tokenize("\n" + std::string(count, ' ') + "1").size(), 3u);
  EXPECT_EQ(pre_tokenize(std::string(count, '\x01')).size(), 1u);
  EXPECT_EQ(pre_tokenize(std::string(count, '7')).size(), (count + 2) / 3);
  EXPECT_EQ(pre_tokenize(std::string(count, 'a')).size(), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace gannet::text
