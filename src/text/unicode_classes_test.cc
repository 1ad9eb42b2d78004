#include "text/unicode_classes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/test_data.h"

namespace gannet::text {
namespace {

TEST(UnicodeClasses, EveryCodePointIsAsFrozen) {
  const auto frozen = nlohmann::json::parse(test_data::read("unicode_classes.json"));
  const std::pair<const char*, CharClass> names[] = {
      {"L", CharClass::letter},      {"M", CharClass::mark},   {"N", CharClass::number},
      {"P", CharClass::punctuation}, {"S", CharClass::symbol}, {"W", CharClass::white_space},
  };
  std::vector<CharClass> expected(0x110000, CharClass::other);
  for (const auto& [name, char_class] : names) {
    for (const auto& range : frozen.at("ranges").at(name)) {
      for (size_t c = range.at(0); c <= range.at(1).get<size_t>(); ++c) expected[c] = char_class;
    }
  }
  for (char32_t c = 0; c < expected.size(); ++c) ASSERT_EQ(char_class(c), expected[c]) << static_cast<uint32_t>(c);
}

TEST(UnicodeClasses, Examples) {
  EXPECT_EQ(char_class(U'x'), CharClass::letter);
  EXPECT_EQ(char_class(0x0301), CharClass::mark);    // Mn
  EXPECT_EQ(char_class(0x0903), CharClass::mark);    // Mc
  EXPECT_EQ(char_class(0x20DD), CharClass::mark);    // Me
  EXPECT_EQ(char_class(0x2167), CharClass::number);  // Roman eight
  EXPECT_EQ(char_class(0x00A0), CharClass::white_space);
  EXPECT_EQ(char_class(0x180E), CharClass::other);
  EXPECT_EQ(char_class(0x001C), CharClass::other);
  EXPECT_EQ(char_class(0xFFFFFFFF), CharClass::other);
}

}  // namespace
}  // namespace gannet::text
