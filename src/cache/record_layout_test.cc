#include "cache/record_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cache/block_pool.h"
#include "checkpoint/shapes.h"

namespace gannet {
namespace {

using testing::ElementsAre;

Config shape(std::string_view name) {
  return named_shape(name, [](int64_t) -> Result<int64_t> { return 100; }).value();
}

// spec: model 4.1.
TEST(RecordLayout, ReleasedRecords) {
  const RecordLayout layout = record_layout(released_config());
  EXPECT_EQ(layout.window_bytes, 528);
  EXPECT_EQ(layout.entry_bytes, 288);
  EXPECT_EQ(layout.key_bytes, 68);
}

// The pool's own memory, not the arithmetic: what a token of the released model's context takes.
TEST(RecordLayout, APoolTakes890BytesAToken) {
  for (const int64_t block : {32, 64, 128}) {
    const BlockPool pool(block_layout(released_config(), block), 1000);
    EXPECT_EQ(pool.bytes(), 1000 * block * 890);
  }
}

TEST(RecordLayout, ReleasedModelCosts890BytesAToken) {
  EXPECT_EQ(global_bytes_per_token(released_config()), 890);
}

// spec: model 4.3.
TEST(RecordLayout, ReleasedWindowState) {
  EXPECT_EQ(window_state_bytes(released_config()), 2703360);
}

TEST(RecordLayout, ReleasedBlockHoldsNothingButRecords) {
  const BlockLayout block = block_layout(released_config(), 64);
  EXPECT_EQ(block.tokens, 64);
  EXPECT_EQ(block.bytes, 64 * 890);
  std::vector<int64_t> records;
  for (const auto& source : block.sources) records.push_back(source.records);
  EXPECT_THAT(records, ElementsAre(32, 32, 32, 64));
}

TEST(RecordLayout, SmallRecordsAreRoundedUpToWholeScales) {
  const RecordLayout layout = record_layout(shape("odd"));  // heads of 96, index heads of 32
  EXPECT_EQ(layout.window_bytes, 96 + 3);
  EXPECT_EQ(layout.entry_bytes, 48 + 6);
  EXPECT_EQ(layout.key_bytes, 16 + 1);
}

// Sources' entries and keys lie one behind the other, without a gap and without an overlap.
TEST(RecordLayout, PartsOfABlockAreDisjoint) {
  std::vector<Config> configs = {released_config()};
  for (const auto name : shape_names()) configs.push_back(shape(name));
  for (const Config& config : configs) {
    const RecordLayout records = record_layout(config);
    const BlockLayout block = block_layout(config, 8);
    ASSERT_EQ(block.sources.size(), config.kv_source_layer_ids.size());
    std::vector<std::pair<int64_t, int64_t>> parts;  // first byte and the one behind the last
    for (size_t i = 0; i < block.sources.size(); ++i) {
      const auto& source = block.sources[i];
      EXPECT_EQ(source.ratio, config.compress_ratios[config.kv_source_layer_ids[i]]);
      EXPECT_EQ(source.records * source.ratio, block.tokens);
      parts.emplace_back(source.entry_offset, source.entry_offset + source.records * records.entry_bytes);
      parts.emplace_back(source.key_offset, source.key_offset + source.records * records.key_bytes);
    }
    std::sort(parts.begin(), parts.end());
    int64_t end = 0;
    for (const auto& part : parts) {
      EXPECT_EQ(part.first, end);
      end = part.second;
    }
    EXPECT_EQ(block.bytes, end);
    EXPECT_EQ(static_cast<double>(block.bytes), 8 * global_bytes_per_token(config));
  }
}

TEST(RecordLayout, WithoutSourcesThereIsNothingToKeep) {
  Config config = released_config();
  config.kv_source_layer_ids.clear();
  EXPECT_EQ(global_bytes_per_token(config), 0);
  EXPECT_EQ(block_layout(config, 64).bytes, 0);
}

}  // namespace
}  // namespace gannet
