#include "text/utf8.h"

#include <gtest/gtest.h>

namespace gannet::text {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

std::string lossy(std::string_view bytes) {
  std::string text;
  append_lossy_utf8(text, bytes);
  return text;
}

TEST(Utf8, EveryCodePointSurvivesBothWays) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= kFirstSurrogate && c <= kLastSurrogate) continue;
    std::string text;
    append_utf8(text, c);
    size_t position = 0;
    ASSERT_EQ(next_code_point(text, position), c);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(utf8_length(text[0]), text.size());
    ASSERT_EQ(utf8_unit(text, 0).kind, Utf8Unit::Kind::character);
    ASSERT_EQ(valid_utf8_length(text), text.size());
  }
}

TEST(Utf8, ValidLengthEndsAtTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_length(""), 0u);
  EXPECT_EQ(valid_utf8_length("caf\xC3\xA9"), 5u);
  EXPECT_EQ(valid_utf8_length("caf\xC3"), 3u);
  EXPECT_EQ(valid_utf8_length("\xFF"), 0u);
  EXPECT_EQ(valid_utf8_length("ab\xED\xA0\x80"), 2u);        // a surrogate
  EXPECT_EQ(valid_utf8_length("\xE2\x82\xAC\xC0\xAF"), 3u);  // an overlong slash
  EXPECT_EQ(valid_utf8_length("a\xF4\x90\x80\x80"), 1u);     // above U+10FFFF
}

TEST(Utf8, LossyReplacesMaximalSubparts) {
  EXPECT_EQ(lossy("plain \xE4\xBD\xA0"), "plain \xE4\xBD\xA0");
  EXPECT_EQ(lossy("\x80"), "\uFFFD");
  EXPECT_EQ(lossy("\xE4\xBD"), "\uFFFD");
  EXPECT_EQ(lossy("\xE4\xBD!"), "\uFFFD!");
  EXPECT_EQ(lossy("\xF0\x9F\x99\xE4\xBD\xA0"), "\uFFFD\xE4\xBD\xA0");
  EXPECT_EQ(lossy("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(lossy("a\xF1\x80\x80\xE1\x80\xC2"
                  "b\x80"
                  "c\x80\xBF"
                  "d"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
}

TEST(Utf8, UnfinishedOnlyAtTheEnd) {
  EXPECT_EQ(utf8_unit("\xF0\x9F", 0).kind, Utf8Unit::Kind::unfinished);
  EXPECT_EQ(utf8_unit("\xF0\x9F", 0).length, 2u);
  EXPECT_EQ(utf8_unit("\xF0\x9Fx", 0).kind, Utf8Unit::Kind::broken);
  EXPECT_EQ(utf8_unit("\xF5", 0).kind, Utf8Unit::Kind::broken);
  EXPECT_EQ(utf8_unit("\xE0\x9F", 0).kind, Utf8Unit::Kind::broken);
  EXPECT_EQ(utf8_unit("\xE0\x9F", 0).length, 1u);
}

}  // namespace
}  // namespace gannet::text
