#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/embed/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

using ::testing::ElementsAre;

// Streams, then pre; by the reference for a null device.
std::vector<float> run(const std::vector<int32_t>& ids, const std::vector<uint16_t>& weight, int64_t hidden, int64_t s,
                       const Device* device = nullptr) {
  const auto rows = std::ssize(ids);
  auto out = poisoned(rows * s * (hidden + 1));
  const EmbedParams params{.ids = ids.data(),
                           .rows = rows,
                           .weight = weight.data(),
                           .hidden = hidden,
                           .streams_per_row = s,
                           .streams = out.data(),
                           .pre = out.data() + rows * s * hidden};
  if (device != nullptr) {
    embed(*device, params);
  } else {
    embed_reference(params, 0, rows);
  }
  return out;
}

TEST(Embed, CopiesTheRowIntoEveryStreamAndStartsPreAtTheFirst) {
  const auto weight = bf16_codes(std::vector<float>{1, 2, 3, 4, -5, 0.5F});
  EXPECT_THAT(run({2, 0}, weight, 2, 3), ElementsAre(-5, 0.5F, -5, 0.5F, -5, 0.5F, 1, 2, 1, 2, 1, 2, 1, 0, 0, 1, 0, 0));
}

TEST(Embed, DevicesAgreeForAnyNumberOfRows) {
  const auto weight = bf16_codes(Random(1).normals(50 * 24));
  for (const auto& ids : std::vector<std::vector<int32_t>>{{}, {49}, {0, 49, 7, 7, 31}}) {
    expect_devices_agree([&](const Device* device) { return run(ids, weight, 24, 4, device); }, 0, 0);
  }
}

}  // namespace
}  // namespace gannet::ops::test
