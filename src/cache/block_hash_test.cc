#include "cache/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace gannet {
namespace {

std::vector<int32_t> ids(int64_t count, int32_t first = 0) {
  std::vector<int32_t> made(count);
  std::iota(made.begin(), made.end(), first);
  return made;
}

std::vector<BlockHash> chain_of(const BlockHasher& hasher, const std::vector<int32_t>& tokens,
                                std::string_view salt = "") {
  std::vector<BlockHash> chain;
  hasher.extend(hasher.root(salt), tokens, chain);
  return chain;
}

TEST(BlockHasher, OneHashForEachWholeBlock) {
  const BlockHasher hasher(8);
  EXPECT_EQ(chain_of(hasher, ids(0)).size(), 0U);
  EXPECT_EQ(chain_of(hasher, ids(7)).size(), 0U);
  EXPECT_EQ(chain_of(hasher, ids(8)).size(), 1U);
  EXPECT_EQ(chain_of(hasher, ids(31)).size(), 3U);
}

TEST(BlockHasher, ExtendingGivesWhatOneGoGives) {
  const BlockHasher hasher(8);
  const auto tokens = ids(80);
  std::vector<BlockHash> chain;
  for (size_t length = 0; length <= tokens.size(); length += 5) {
    hasher.extend(hasher.root(""), {tokens.data(), length}, chain);
  }
  EXPECT_EQ(chain, chain_of(hasher, tokens));
}

TEST(BlockHasher, AHashStandsForAllTokensBefore) {
  const BlockHasher hasher(8);
  auto tokens = ids(32);
  const auto before = chain_of(hasher, tokens);
  tokens[9] += 1;
  const auto after = chain_of(hasher, tokens);
  EXPECT_EQ(before[0], after[0]);
  for (size_t b = 1; b < before.size(); ++b) EXPECT_NE(before[b], after[b]);
}

TEST(BlockHasher, EqualBlocksInDifferentPlacesDiffer) {
  const BlockHasher hasher(4);
  const auto chain = chain_of(hasher, std::vector<int32_t>(400, 7));
  std::set<uint64_t> seen;
  for (const BlockHash& hash : chain) seen.insert(hash.low);
  EXPECT_EQ(seen.size(), chain.size());
}

TEST(BlockHasher, SaltsKeepTenantsApart) {
  const BlockHasher hasher(8);
  EXPECT_EQ(chain_of(hasher, ids(16), "a"), chain_of(hasher, ids(16), "a"));
  EXPECT_NE(chain_of(hasher, ids(16), "a")[0], chain_of(hasher, ids(16), "b")[0]);
  EXPECT_NE(chain_of(hasher, ids(16), "a")[0], chain_of(hasher, ids(16), "")[0]);
}

TEST(BlockHasher, EveryHasherHasAKeyOfItsOwn) {
  EXPECT_NE(chain_of(BlockHasher(8), ids(8))[0], chain_of(BlockHasher(8), ids(8))[0]);
}

}  // namespace
}  // namespace gannet
