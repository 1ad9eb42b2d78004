#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace gannet::text {
namespace {

struct Found {
  size_t begin;
  size_t end;
  int32_t id;
  bool operator==(const Found&) const = default;
};

std::vector<Found> find_all(const AddedTokens& tokens, std::string_view text) {
  std::vector<Found> found;
  size_t position = 0;
  while (const auto match = tokens.find(text, position)) {
    found.push_back({match->begin, match->end, match->id});
    position = match->end;
  }
  return found;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokens tokens({{"<a", 1}, {"<ab>", 2}, {"<abc", 3}, {"b>", 4}});
  EXPECT_EQ(find_all(tokens, "x<ab>y"), (std::vector<Found>{{1, 5, 2}}));
  EXPECT_EQ(find_all(tokens, "<abcb>"), (std::vector<Found>{{0, 4, 3}, {4, 6, 4}}));
  EXPECT_EQ(find_all(tokens, "<ab<a"), (std::vector<Found>{{0, 2, 1}, {3, 5, 1}}));
  EXPECT_EQ(find_all(tokens, "<a<ab"), (std::vector<Found>{{0, 2, 1}, {2, 4, 1}}));
}

TEST(AddedTokens, NothingToFind) {
  const AddedTokens tokens({{"<think>", 1}});
  EXPECT_TRUE(find_all(tokens, "").empty());
  EXPECT_TRUE(find_all(tokens, "<think").empty());
  EXPECT_TRUE(find_all(tokens, "< think>").empty());
  EXPECT_TRUE(find_all(AddedTokens({}), "<think>").empty());
}

TEST(AddedTokens, OtherLetters) {
  const AddedTokens tokens({{"｜DSML｜", 1}, {"<｜User｜>", 2}});
  EXPECT_EQ(find_all(tokens, "</｜DSML｜ <｜User｜>"), (std::vector<Found>{{2, 12, 1}, {13, 25, 2}}));
}

}  // namespace
}  // namespace gannet::text
