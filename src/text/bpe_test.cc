#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>

namespace gannet::text {
namespace {

using ::testing::ElementsAre;
using Pair = std::pair<int32_t, int32_t>;

// Single bytes have their own value as id; merge number r makes id 256 + r.
struct Rules {
  std::vector<Pair> pairs;

  Bpe bpe() const {
    std::array<int32_t, 256> byte_ids{};
    for (int32_t byte = 0; byte < 256; ++byte) byte_ids[byte] = byte;
    MergeTable merges(pairs.size());
    for (int32_t rank = 0; rank < static_cast<int32_t>(pairs.size()); ++rank) {
      EXPECT_TRUE(merges.insert(pairs[rank].first, pairs[rank].second, {rank, 256 + rank}));
    }
    return Bpe(byte_ids, std::move(merges));
  }

  // The definition: again and again the pair of lowest rank, leftmost first.
  std::vector<int32_t> encode_slowly(std::string_view piece) const {
    std::vector<int32_t> ids;
    for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
    for (;;) {
      size_t best_rank = pairs.size();
      size_t best_at = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = std::find(pairs.begin(), pairs.end(), Pair(ids[i], ids[i + 1])) - pairs.begin();
        if (static_cast<size_t>(found) < best_rank) std::tie(best_rank, best_at) = std::pair(found, i);
      }
      if (best_rank == pairs.size()) return ids;
      ids[best_at] = static_cast<int32_t>(256 + best_rank);
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
    }
  }
};

std::vector<int32_t> encode(const Bpe& bpe, std::string_view piece) {
  Bpe::Workspace workspace;
  std::vector<int32_t> ids;
  bpe.encode(piece, workspace, ids);
  return ids;
}

TEST(MergeTable, FindsPairsInOrder) {
  MergeTable merges(2);
  EXPECT_TRUE(merges.insert(1, 2, {0, 10}));
  EXPECT_TRUE(merges.insert(2, 1, {1, 11}));
  EXPECT_FALSE(merges.insert(1, 2, {2, 12}));
  EXPECT_EQ(merges.find(1, 2).id, 10);
  EXPECT_EQ(merges.find(2, 1).rank, 1);
  EXPECT_EQ(merges.find(1, 1).rank, Merge::kNone);
  EXPECT_EQ(MergeTable(0).find(1, 1).rank, Merge::kNone);
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Rules rules{{{'b', 'c'}, {'a', 'b'}, {'a', 'a'}}};
  const Bpe bpe = rules.bpe();
  EXPECT_THAT(encode(bpe, ""), ElementsAre());
  EXPECT_THAT(encode(bpe, "\xFF"), ElementsAre(255));
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(encode(bpe, "abx"), ElementsAre(257, 'x'));
  EXPECT_THAT(encode(bpe, "aaa"), ElementsAre(258, 'a'));
}

TEST(Bpe, AppendsAndReusesItsWorkspace) {
  const Bpe bpe = Rules{{{'a', 'b'}}}.bpe();
  Bpe::Workspace workspace;
  std::vector<int32_t> ids = {7};
  bpe.encode("abab", workspace, ids);
  bpe.encode("b", workspace, ids);
  EXPECT_THAT(ids, ElementsAre(7, 256, 256, 'b'));
}

TEST(Bpe, EqualsTheDefinitionOnRandomRules) {
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (int round = 0; round < 50; ++round) {
    Rules rules;
    std::vector<int32_t> ids = {'a', 'b', 'c'};
    while (rules.pairs.size() < 20) {
      const Pair pair(ids[below(ids.size())], ids[below(ids.size())]);
      if (std::find(rules.pairs.begin(), rules.pairs.end(), pair) != rules.pairs.end()) continue;
      ids.push_back(static_cast<int32_t>(256 + rules.pairs.size()));
      rules.pairs.push_back(pair);
    }
    const Bpe bpe = rules.bpe();
    for (int i = 0; i < 20; ++i) {
      std::string piece;
      for (size_t length = below(60); length > 0; --length) piece.push_back("abc"[below(3)]);
      ASSERT_EQ(encode(bpe, piece), rules.encode_slowly(piece)) << piece;
    }
  }
}

}  // namespace
}  // namespace gannet::text
