#include "cache/window_store.h"

#include <gtest/gtest.h>

namespace gannet {
namespace {

BlockHash hash_of(uint64_t number) {
  return {.high = number, .low = number};
}

TEST(WindowStore, KeepsWhatWasPublished) {
  WindowStore store(16, 3);
  const auto place = store.take();
  ASSERT_TRUE(place);
  EXPECT_FALSE(store.find(hash_of(1)));
  store.publish(*place, hash_of(1));
  EXPECT_EQ(store.find(hash_of(1)), place);
  EXPECT_FALSE(store.find(hash_of(2)));
}

TEST(WindowStore, TheLeastRecentlyUsedGivesWay) {
  WindowStore store(16, 2);
  store.publish(*store.take(), hash_of(1));
  store.publish(*store.take(), hash_of(2));
  EXPECT_TRUE(store.find(hash_of(1)));
  store.publish(*store.take(), hash_of(3));
  EXPECT_TRUE(store.find(hash_of(1)));
  EXPECT_FALSE(store.find(hash_of(2)));
  EXPECT_TRUE(store.find(hash_of(3)));
}

TEST(WindowStore, WhatIsTouchedStays) {
  WindowStore store(16, 2);
  store.publish(*store.take(), hash_of(1));
  const auto place = store.find(hash_of(1));
  for (uint64_t other = 2; other < 6; ++other) {
    store.touch(*place);
    store.publish(*store.take(), hash_of(other));
  }
  EXPECT_EQ(store.find(hash_of(1)), place);
}

TEST(WindowStore, PlacesBeingWrittenAreNotTaken) {
  WindowStore store(16, 2);
  const auto first = store.take();
  const auto second = store.take();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_FALSE(store.take());
  store.release(*first);
  EXPECT_EQ(store.take(), first);
}

TEST(WindowStore, TheSameWindowsTwiceTakeOnePlace) {
  WindowStore store(16, 2);
  const auto first = *store.take();
  const auto second = *store.take();
  store.publish(first, hash_of(1));
  store.publish(second, hash_of(1));
  EXPECT_EQ(store.find(hash_of(1)), first);
  EXPECT_EQ(store.take(), second);
}

TEST(WindowStore, PlacesDoNotOverlap) {
  WindowStore store(16, 2);
  EXPECT_EQ(store.data(1) - store.data(0), 16);
}

TEST(WindowStore, Forgets) {
  WindowStore store(16, 2);
  store.publish(*store.take(), hash_of(1));
  store.forget();
  EXPECT_FALSE(store.find(hash_of(1)));
  EXPECT_TRUE(store.take() && store.take());
}

TEST(WindowStore, MayHaveNoPlaceAtAll) {
  WindowStore store(16, 0);
  EXPECT_FALSE(store.take());
  EXPECT_FALSE(store.find(hash_of(1)));
}

}  // namespace
}  // namespace gannet
