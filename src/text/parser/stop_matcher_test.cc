#include "text/parser/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace gannet::text {
namespace {

std::string before_stop(const std::vector<std::string>& stops, const std::string& text, size_t piece_length) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t position = 0; position < text.size(); position += piece_length) {
    out += matcher.push(std::string_view(text).substr(position, piece_length));
  }
  return out + matcher.finish();
}

// The definition: the stop string that ends first, of those the first listed.
std::string by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 0; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) return text.substr(0, end - stop.size());
    }
  }
  return text;
}

TEST(StopMatcher, FindsTheFirstEnd) {
  EXPECT_EQ(before_stop({"STOP"}, "go STOP on", 1), "go ");
  EXPECT_EQ(before_stop({"abc", "bab"}, "abababc", 2), "a");
  EXPECT_EQ(before_stop({"bc", "abc"}, "abc", 3), "a");
  EXPECT_EQ(before_stop({"aab"}, "aaab", 1), "a");
  EXPECT_EQ(before_stop({}, "text", 1), "text");
}

TEST(StopMatcher, AgreesWithTheDefinition) {
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): repeatable on purpose
  const auto word = [&random](size_t longest) {
    std::string letters;
    for (size_t count = 1 + random() % longest; count > 0; --count) letters += "ab"[random() % 2];
    return letters;
  };
  for (int round = 0; round < 5000; ++round) {
    const std::vector<std::string> stops = {word(5), word(5), word(7)};
    const std::string text = word(25);
    ASSERT_EQ(before_stop(stops, text, 1 + random() % 4), by_definition(stops, text)) << text;
  }
}

TEST(StopMatcher, LongStopsTakeLinearTime) {
  const std::string long_stop = std::string(100000, 'a') + "b";
  const std::string text(1000000, 'a');
  EXPECT_EQ(before_stop({long_stop}, text, 3), text);
}

}  // namespace
}  // namespace gannet::text
