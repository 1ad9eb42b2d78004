#include "text/unsampled_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_data.h"

namespace gannet::text {
namespace {

using testing::Contains;
using testing::Not;

TEST(UnsampledIds, OfTheReleasedVocabulary) {
  const auto ids = unsampled_ids(test_data::released_tokenizer(), 129280);
  // 799 numbered places, two named ones, 422 spans; begin, padding, three of pictures.
  EXPECT_EQ(ids.size(), 799U + 2 + 422 + 5);
  for (const int32_t id : {0, 2, 128000, 128798, 128823, 128847, 129262, 129264, 129270, 129279}) {
    EXPECT_THAT(ids, Contains(id));
  }
  for (const int32_t id : {1, 3, 100000, 128799, 128803, 128821, 128822, 128825, 128840, 129278}) {
    EXPECT_THAT(ids, Not(Contains(id)));
  }
}

TEST(UnsampledIds, IdsWithoutATokenAreAmongThem) {
  const auto ids = unsampled_ids(test_data::released_tokenizer(), 129300);
  EXPECT_THAT(ids, Contains(129280));
  EXPECT_THAT(ids, Contains(129299));
}

}  // namespace
}  // namespace gannet::text
