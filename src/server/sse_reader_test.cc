#include "server/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gannet::server {
namespace {

using testing::ElementsAre;

std::vector<std::string> events(const std::string& text, size_t piece) {
  SseReader reader;
  std::vector<std::string> seen;
  for (size_t i = 0; i < text.size(); i += piece) {
    reader.push(std::string_view(text).substr(i, piece), [&seen](std::string_view data) { seen.emplace_back(data); });
  }
  return seen;
}

TEST(SseReader, FindsEventsHoweverTheyAreCut) {
  const std::string text =
      ": comment\n\ndata: one\n\nevent: named\ndata:two\n\ndata: a\ndata: b\n\n\n\ndata: \r\n\r\ndata: unfinished\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_THAT(events(text, piece), ElementsAre("one", "two", "a\nb", "")) << piece;
  }
}

}  // namespace
}  // namespace gannet::server
