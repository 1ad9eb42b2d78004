#include "cache/sequence_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/shapes.h"

namespace gannet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kTokens = 8;  // in a block

// Ten layers, sources of ratio 2, 2 and 1.
const Config& config() {
  static const Config small = named_shape("small", [](int64_t) -> Result<int64_t> { return 100; }).value();
  return small;
}

class SequenceStateTest : public testing::Test {
 protected:
  // Fills every record of a sequence's first `tokens` tokens with bytes that tell where it is.
  static void write(SequenceState& state, int64_t tokens, int mark) {
    for_each_record(state, tokens, [&](std::byte* record, int64_t bytes, int64_t number) {
      std::memset(record, static_cast<int>((number * 37 + mark) % 251), bytes);
    });
  }
  static bool holds(SequenceState& state, int64_t tokens, int mark) {
    bool same = true;
    for_each_record(state, tokens, [&](const std::byte* record, int64_t bytes, int64_t number) {
      const auto expected = static_cast<std::byte>((number * 37 + mark) % 251);
      same = same && std::all_of(record, record + bytes, [&](std::byte b) { return b == expected; });
    });
    return same;
  }

  BlockPool pool_{block_layout(config(), kTokens), 10};

 private:
  template <class F>
  static void for_each_record(SequenceState& state, int64_t tokens, const F& f) {
    int64_t number = 0;
    for (size_t i = 0; i < config().kv_source_layer_ids.size(); ++i) {
      const auto source = static_cast<int64_t>(i);
      const int64_t count = tokens / config().compress_ratios[config().kv_source_layer_ids[i]];
      for (const auto& records : {state.entries(source), state.keys(source)}) {
        for (int64_t r = 0; r < count; ++r) f(records.at(r), records.record_bytes, number++);
      }
    }
  }
};

TEST_F(SequenceStateTest, StartsEmpty) {
  SequenceState state(config(), pool_);
  EXPECT_EQ(state.length(), 0);
  EXPECT_EQ(state.cached(), 0);
  EXPECT_EQ(state.encoder_from(), 0);
  EXPECT_EQ(state.decoder_from(), 0);
  EXPECT_THAT(state.history(), IsEmpty());
  EXPECT_EQ(state.window_bytes(), window_state_bytes(config()));
}

TEST_F(SequenceStateTest, RecordsOfAllSourcesAreDisjoint) {
  BlockTable first_blocks = pool_.table();
  BlockTable second_blocks = pool_.table();
  ASSERT_TRUE(first_blocks.grow(20) && second_blocks.grow(40) && first_blocks.grow(40));
  SequenceState first(config(), pool_);
  SequenceState second(config(), pool_);
  first.begin({.blocks = first_blocks.ids().data()});
  second.begin({.blocks = second_blocks.ids().data()});
  write(first, 40, 1);
  write(second, 40, 100);
  EXPECT_TRUE(holds(first, 40, 1));
  EXPECT_TRUE(holds(second, 40, 100));
}

TEST_F(SequenceStateTest, RingsAndPendingPairsAreDisjoint) {
  SequenceState state(config(), pool_);
  const int64_t ring_bytes = config().sliding_window * record_layout(config()).window_bytes;
  for (int64_t n = 0; n < config().num_hidden_layers; ++n) {
    std::memset(state.ring(n), static_cast<int>(n) + 1, ring_bytes);
  }
  for (int64_t source = 0; source < 3; ++source) {
    std::fill_n(state.pending(source), 2 * config().head_dim, static_cast<float>(source));
  }
  for (int64_t n = 0; n < config().num_hidden_layers; ++n) {
    const auto mark = static_cast<std::byte>(n + 1);
    EXPECT_TRUE(std::all_of(state.ring(n), state.ring(n) + ring_bytes, [&](std::byte b) { return b == mark; }));
  }
  for (int64_t source = 0; source < 3; ++source) {
    const float* pending = state.pending(source);
    EXPECT_TRUE(std::all_of(pending, pending + 2 * config().head_dim,
                            [&](float value) { return value == static_cast<float>(source); }));
  }
}

TEST_F(SequenceStateTest, BeginForgetsWhatWas) {
  BlockTable blocks = pool_.table();
  ASSERT_TRUE(blocks.grow(30));
  SequenceState state(config(), pool_);
  state.begin({.blocks = blocks.ids().data()});
  state.set_decoder_from(14);
  state.history() = {1, 2, 3};
  state.advance(30);
  EXPECT_EQ(state.length(), 30);
  state.begin({.blocks = blocks.ids().data()});
  EXPECT_EQ(state.length(), 0);
  EXPECT_EQ(state.cached(), 0);
  EXPECT_EQ(state.encoder_from(), 0);
  EXPECT_EQ(state.decoder_from(), 0);
  EXPECT_THAT(state.history(), IsEmpty());
}

TEST_F(SequenceStateTest, BeginsBehindAPrefix) {
  BlockTable blocks = pool_.table();
  ASSERT_TRUE(blocks.grow(64));
  SequenceState first(config(), pool_);
  first.begin({.blocks = blocks.ids().data()});
  write(first, 40, 5);

  SequenceState state(config(), pool_);
  state.begin({.blocks = blocks.ids().data(),
               .first = 24,
               .cached = 40,
               .encoder_from = 24,
               .decoder_from = 30,
               .history = {7, 8, 9}});
  EXPECT_EQ(state.length(), 24);
  EXPECT_EQ(state.cached(), 40);
  EXPECT_EQ(state.encoder_from(), 24);
  EXPECT_EQ(state.decoder_from(), 30);
  EXPECT_THAT(state.history(), ElementsAre(7, 8, 9));
  EXPECT_TRUE(holds(state, 40, 5));
}

}  // namespace
}  // namespace gannet
