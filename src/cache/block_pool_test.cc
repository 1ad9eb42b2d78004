#include "cache/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace gannet {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr BlockLayout kLayout{.tokens = 4, .bytes = 40};

TEST(BlockPool, StartsWithAllBlocksFree) {
  BlockPool pool(kLayout, 10);
  EXPECT_EQ(pool.blocks(), 10);
  EXPECT_EQ(pool.free_blocks(), 10);
  EXPECT_EQ(pool.layout().bytes, 40);
}

TEST(BlockPool, NoBlocksAtAll) {
  BlockPool pool(kLayout, 0);
  BlockTable table = pool.table();
  EXPECT_TRUE(table.grow(0));
  EXPECT_FALSE(table.grow(1));
  EXPECT_THAT(table.ids(), IsEmpty());
}

TEST(BlockTable, GrowsByWholeBlocks) {
  BlockPool pool(kLayout, 10);
  BlockTable table = pool.table();
  for (const auto& [tokens, blocks] : {std::pair{0, 0U}, {1, 1U}, {4, 1U}, {5, 2U}, {40, 10U}}) {
    EXPECT_TRUE(table.grow(tokens));
    EXPECT_THAT(table.ids(), SizeIs(blocks)) << tokens;
    EXPECT_EQ(pool.free_blocks(), 10 - static_cast<int64_t>(blocks));
  }
}

TEST(BlockTable, GrowingToLessChangesNothing) {
  BlockPool pool(kLayout, 10);
  BlockTable table = pool.table();
  ASSERT_TRUE(table.grow(20));
  const auto before = table.ids();
  EXPECT_TRUE(table.grow(3));
  EXPECT_EQ(table.ids(), before);
}

TEST(BlockTable, GrowingKeepsTheBlocksInOrder) {
  BlockPool pool(kLayout, 10);
  BlockTable table = pool.table();
  ASSERT_TRUE(table.grow(12));
  const auto before = table.ids();
  ASSERT_TRUE(table.grow(36));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), table.ids().begin()));
}

TEST(BlockTable, AnExhaustedPoolChangesNothing) {
  BlockPool pool(kLayout, 3);
  BlockTable first = pool.table();
  BlockTable second = pool.table();
  ASSERT_TRUE(first.grow(8));
  ASSERT_FALSE(second.grow(5));
  EXPECT_THAT(second.ids(), IsEmpty());
  EXPECT_EQ(pool.free_blocks(), 1);
  const auto before = first.ids();
  ASSERT_FALSE(first.grow(13));
  EXPECT_EQ(first.ids(), before);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_TRUE(second.grow(4));
}

TEST(BlockTable, ShrinksToWhatTheTokensNeed) {
  BlockPool pool(kLayout, 10);
  BlockTable table = pool.table();
  ASSERT_TRUE(table.grow(40));
  const auto before = table.ids();
  for (const auto& [tokens, blocks] : {std::pair{37, 10U}, {36, 9U}, {5, 2U}, {4, 1U}, {100, 1U}, {0, 0U}}) {
    table.shrink(tokens);
    EXPECT_THAT(table.ids(), SizeIs(blocks)) << tokens;
    EXPECT_TRUE(std::equal(table.ids().begin(), table.ids().end(), before.begin()));
    EXPECT_EQ(pool.free_blocks(), 10 - static_cast<int64_t>(blocks));
  }
}

TEST(BlockTable, GivesItsBlocksBackInTheEnd) {
  BlockPool pool(kLayout, 10);
  {
    BlockTable table = pool.table();
    ASSERT_TRUE(table.grow(30));
    EXPECT_EQ(pool.free_blocks(), 2);
  }
  EXPECT_EQ(pool.free_blocks(), 10);
}

TEST(BlockTable, MovingMovesTheBlocks) {
  BlockPool pool(kLayout, 10);
  BlockTable from = pool.table();
  ASSERT_TRUE(from.grow(8));
  const auto ids = from.ids();
  {
    const BlockTable to(std::move(from));
    EXPECT_EQ(to.ids(), ids);
    EXPECT_EQ(pool.free_blocks(), 8);
  }
  EXPECT_EQ(pool.free_blocks(), 10);
}

TEST(BlockTable, MoveAssignmentLosesNoBlock) {
  BlockPool pool(kLayout, 10);
  {
    BlockTable target = pool.table();
    ASSERT_TRUE(target.grow(4));
    BlockTable from = pool.table();
    ASSERT_TRUE(from.grow(12));
    const auto ids = from.ids();
    target = std::move(from);
    EXPECT_EQ(target.ids(), ids);
  }
  EXPECT_EQ(pool.free_blocks(), 10);
}

TEST(BlockTable, AnEmptyOneCanBeAssignedTo) {
  BlockPool pool(kLayout, 2);
  {
    BlockTable table;
    EXPECT_THAT(table.ids(), IsEmpty());
    table = pool.table();
    EXPECT_TRUE(table.grow(8));
  }
  EXPECT_EQ(pool.free_blocks(), 2);
}

// However tables grow and shrink, each block has one owner and what an owner wrote stays.
TEST(BlockTable, TablesNeverShareBytes) {
  BlockPool pool(kLayout, 16);
  std::vector<BlockTable> tables(4);
  for (auto& table : tables) table = pool.table();
  const auto mark = [&](size_t owner) {
    for (const int32_t id : tables[owner].ids()) std::memset(pool.data() + id * 40, static_cast<int>(owner) + 1, 40);
  };
  for (int64_t step = 0; step < 200; ++step) {
    const auto owner = static_cast<size_t>(step * 7 % 4);
    const int64_t tokens = step * 13 % 29;
    if (!tables[owner].grow(tokens) || step % 3 == 0) tables[owner].shrink(tokens);
    mark(owner);
    std::set<int32_t> taken;
    for (size_t i = 0; i < tables.size(); ++i) {
      for (const int32_t id : tables[i].ids()) {
        EXPECT_TRUE(id >= 0 && id < 16 && taken.insert(id).second);
        const std::byte* block = pool.data() + id * 40;
        EXPECT_TRUE(std::all_of(block, block + 40, [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
      }
    }
    EXPECT_EQ(pool.free_blocks(), 16 - static_cast<int64_t>(taken.size()));
  }
}

BlockHash hash_of(uint64_t number) {
  return {.high = number * 7, .low = number};
}

// A table whose first blocks hold what these hashes stand for.
BlockTable published(BlockPool& pool, std::initializer_list<uint64_t> numbers) {
  BlockTable table = pool.table();
  EXPECT_TRUE(table.grow(static_cast<int64_t>(numbers.size()) * pool.layout().tokens));
  size_t block = 0;
  for (const uint64_t number : numbers) pool.publish(table.ids()[block++], hash_of(number));
  return table;
}

TEST(PrefixIndex, FindsLeadingBlocksOnly) {
  BlockPool pool(kLayout, 10);
  const BlockTable table = published(pool, {1, 2, 3});
  EXPECT_EQ(pool.match(std::vector{hash_of(1), hash_of(2), hash_of(9), hash_of(3)}).blocks, 2);
  EXPECT_EQ(pool.match(std::vector{hash_of(2), hash_of(1)}).blocks, 2);
  EXPECT_EQ(pool.match(std::vector{hash_of(4)}).blocks, 0);
  EXPECT_EQ(pool.match({}).blocks, 0);
}

TEST(PrefixIndex, SharedBlocksGoBackWithTheirLastHolder) {
  BlockPool pool(kLayout, 10);
  BlockTable first = published(pool, {1, 2});
  const auto ids = first.ids();
  BlockTable second = pool.table();
  second.share(std::vector{hash_of(1), hash_of(2)});
  EXPECT_EQ(second.ids(), ids);
  EXPECT_EQ(pool.free_blocks(), 8);
  first.shrink(0);
  EXPECT_EQ(pool.free_blocks(), 8);
  second.shrink(0);
  EXPECT_EQ(pool.free_blocks(), 10);
  EXPECT_EQ(pool.cached_blocks(), 2);
}

TEST(PrefixIndex, AFreeBlockIsRevived) {
  BlockPool pool(kLayout, 10);
  const auto ids = published(pool, {1, 2}).ids();
  EXPECT_EQ(pool.match(std::vector{hash_of(1), hash_of(2)}).free, 2);
  BlockTable again = pool.table();
  again.share(std::vector{hash_of(1), hash_of(2)});
  EXPECT_EQ(again.ids(), ids);
  EXPECT_EQ(pool.cached_blocks(), 0);
  EXPECT_EQ(pool.match(std::vector{hash_of(1), hash_of(2)}).free, 0);
}

TEST(PrefixIndex, BlocksWithoutContentAreUsedFirst) {
  BlockPool pool(kLayout, 4);
  published(pool, {1, 2});  // free again at once, and found
  BlockTable other = pool.table();
  ASSERT_TRUE(other.grow(8));
  EXPECT_EQ(pool.match(std::vector{hash_of(1), hash_of(2)}).blocks, 2);
}

TEST(PrefixIndex, TheEndOfTheLongestFreePrefixGoesFirst) {
  BlockPool pool(kLayout, 4);
  published(pool, {1, 2});
  published(pool, {3, 4});
  BlockTable other = pool.table();
  ASSERT_TRUE(other.grow(4));
  EXPECT_EQ(pool.match(std::vector{hash_of(1), hash_of(2)}).blocks, 1);
  EXPECT_EQ(pool.match(std::vector{hash_of(3), hash_of(4)}).blocks, 2);
  ASSERT_TRUE(other.grow(12));
  EXPECT_EQ(pool.match(std::vector{hash_of(1)}).blocks, 0);
  EXPECT_EQ(pool.match(std::vector{hash_of(3), hash_of(4)}).blocks, 1);
}

TEST(PrefixIndex, ASecondBlockOfTheSameContentStaysUnknown) {
  BlockPool pool(kLayout, 4);
  const BlockTable first = published(pool, {1});
  {
    const BlockTable second = published(pool, {1});
    EXPECT_NE(first.ids(), second.ids());
  }
  EXPECT_EQ(pool.cached_blocks(), 0);
  BlockTable found = pool.table();
  found.share(std::vector{hash_of(1)});
  EXPECT_EQ(found.ids(), first.ids());
}

TEST(PrefixIndex, ForgettingLeavesWhatIsHeld) {
  BlockPool pool(kLayout, 4);
  published(pool, {1, 2});
  BlockTable held = published(pool, {3});
  pool.forget();
  EXPECT_EQ(pool.cached_blocks(), 0);
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_EQ(pool.match(std::vector{hash_of(3)}).blocks, 0);
  held.shrink(0);
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_EQ(pool.cached_blocks(), 0);
  BlockTable all = pool.table();
  EXPECT_TRUE(all.grow(16));
}

TEST(BlockTable, ReservedIdsStayWhereTheyAre) {
  BlockPool pool(kLayout, 1000);
  BlockTable table = pool.table();
  table.reserve(4000);
  const int32_t* ids = table.ids().data();
  for (int64_t tokens = 1; tokens <= 4000; tokens += 13) ASSERT_TRUE(table.grow(tokens));
  EXPECT_EQ(table.ids().data(), ids);
  const BlockTable moved = std::move(table);
  EXPECT_EQ(moved.ids().data(), ids);
}

}  // namespace
}  // namespace gannet
