#include "text/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gannet::text {
namespace {

using ::testing::HasSubstr;

std::string reprinted(std::string_view text) {
  const auto parsed = parse_json(text);
  return parsed ? python_json(*parsed) : "error: " + parsed.error().message;
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, PrintsLikePython) {
  EXPECT_EQ(reprinted(R"( {"b" : [1,2.50 , null],"a":{"x":true}} )"), R"({"b": [1, 2.5, null], "a": {"x": true}})");
  EXPECT_EQ(reprinted(R"("\u65e5\n\t\"\\\/\u0001\u2028\u007f")"), "\"日\\n\\t\\\"\\\\/\\u0001\u2028\x7f\"");
  EXPECT_EQ(reprinted(R"({"a":1,"b":2,"a":{"c":3}})"), R"({"a": {"c": 3}, "b": 2})");
  EXPECT_EQ(reprinted("{}"), "{}");
  EXPECT_EQ(reprinted("[]"), "[]");
}

TEST(Json, KeepsNumbersAsTheyAre) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},
      {"-0", "-0.0"},
      {"-0.0", "-0.0"},
      {"1e2", "100.0"},
      {"1E-7", "1e-07"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"9007199254740993", "9007199254740993"},
      {"18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "1.8446744073709552e+19"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"-9223372036854775809", "-9.223372036854776e+18"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"123456789.0", "123456789.0"},
      {"0.30000000000000004", "0.30000000000000004"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(reprinted(text), expected) << text;
}

TEST(Json, PrintsCompactly) {
  const auto value = parse_json(R"({"a": [1e22, 1e-7, 0.00001, 100.0, -0.0], "b": null})").value();
  EXPECT_EQ(compact_json(value), R"({"a":[1e+22,1e-7,0.00001,100.0,-0.0],"b":null})");
  EXPECT_EQ(spaced_json(value), R"({"a": [1e+22, 1e-7, 0.00001, 100.0, -0.0], "b": null})");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "'x'",
                                      "01",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "NaN",
                                      "Infinity",
                                      "1e400",
                                      "-1e400",
                                      "tru",
                                      "nul",
                                      "\"\\ud800\"",
                                      "\"\\udc00x\"",
                                      "\"\\x\"",
                                      "\"\n\"",
                                      "{} {}",
                                      "{}x",
                                      "\xEF\xBB\xBF{}",
                                      "\"\xFF\"",
                                      "\"\xC3\"",
                                      "\"\xED\xA0\x80\"",
                                      "[1 2]",
                                      "{\"a\" 1}",
                                      "/**/1",
                                      "\"unfinished"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
  EXPECT_FALSE(parse_json(std::string_view("{}\0{}", 5)));
  EXPECT_FALSE(parse_json(std::string_view("\"\0\"", 3)));
}

TEST(Json, LimitsNesting) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)));
  const auto too_deep = parse_json(nested(kMaxJsonDepth + 1));
  ASSERT_FALSE(too_deep);
  EXPECT_THAT(too_deep.error().message, HasSubstr("127"));
  EXPECT_FALSE(parse_json(std::string(1000000, '[')));
}

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int key = 0; key < 200000; ++key) text += fmt::format("{}\"k{}\":1", key == 0 ? "" : ",", key);
  const auto parsed = parse_json(text + "}");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->object()->size(), 200000U);
}

TEST(Json, ErrorMessagesAreShort) {
  const auto parsed = parse_json("\"" + std::string(1000000, 'a'));
  ASSERT_FALSE(parsed);
  EXPECT_LT(parsed.error().message.size(), 200U);
}

}  // namespace
}  // namespace gannet::text
