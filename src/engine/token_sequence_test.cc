#include "engine/token_sequence.h"

#include <gtest/gtest.h>

#include "engine/live_request.h"

namespace gannet {
namespace {

std::vector<int32_t> part(const TokenSequence& tokens, size_t first, size_t count) {
  std::vector<int32_t> ids;
  tokens.append_to(ids, first, count);
  return ids;
}

TEST(TokenSequence, HoldsAPromptAndAnAnswer) {
  TokenSequence tokens({1, 2, 3});
  for (const int32_t id : {4, 5}) tokens.push_back(id);
  EXPECT_EQ(tokens.size(), 5U);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(tokens[i], static_cast<int32_t>(i) + 1);
  EXPECT_EQ(part(tokens, 0, 5), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(part(tokens, 2, 2), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(part(tokens, 0, 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(part(tokens, 4, 1), (std::vector<int32_t>{5}));
  EXPECT_EQ(part(tokens, 3, 0), std::vector<int32_t>());
}

TEST(TokenSequence, BlocksHaveTheSameHashesWhereverTheirIdsLie) {
  const BlockHasher hasher(4);
  const BlockHash root = hasher.root("");
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 19; ++i) ids.push_back(i * 7);
  std::vector<BlockHash> whole;
  hasher.extend(root, ids, whole);
  ASSERT_EQ(whole.size(), 4U);
  for (ptrdiff_t cut = 0; cut <= 19; ++cut) {
    TokenSequence tokens(std::vector<int32_t>(ids.begin(), ids.begin() + cut));
    std::vector<BlockHash> split;
    hasher.extend(root, tokens, split);
    EXPECT_EQ(split.size(), static_cast<size_t>(cut) / 4);
    for (ptrdiff_t i = cut; i < 19; ++i) tokens.push_back(ids[static_cast<size_t>(i)]);
    hasher.extend(root, tokens, split);
    EXPECT_EQ(split, whole) << cut;
  }
}

TEST(SharedList, IsHeldOnceUntilItIsWrittenTo) {
  const SharedList<int32_t> first = {1, 2, 3};
  SharedList<int32_t> second = first;
  EXPECT_EQ(first.data(), second.values().data());
  second[1] = 9;
  second.resize(4);
  EXPECT_EQ(first, (SharedList<int32_t>{1, 2, 3}));
  EXPECT_EQ(second, (SharedList<int32_t>{1, 9, 3, 0}));
  EXPECT_TRUE(SharedList<int32_t>().empty());
}

TEST(LiveRequest, SharesItsPromptAndItsLists) {
  const Request request{.prompt = std::vector<int32_t>(1000), .sampling = {.allowed_ids = {1, 2, 3}}};
  const LiveRequest a(1, request, 5, {});
  const LiveRequest b(2, request, 5, {});
  EXPECT_EQ(a.tokens.prompt().data(), request.prompt.data());
  EXPECT_EQ(b.tokens.prompt().data(), request.prompt.data());
  EXPECT_EQ(a.request.sampling.allowed_ids.data(), b.request.sampling.allowed_ids.data());
}

}  // namespace
}  // namespace gannet
