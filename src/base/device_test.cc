#include "base/device.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gannet {
namespace {

TEST(Device, EveryInstructionSetHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const Simd simd : {Simd::none, Simd::avx2, Simd::avx512, Simd::avx512_bf16}) names.insert(name_of(simd));
  EXPECT_EQ(names.size(), 4U);
}

// Variants compare with <, so the order is part of the contract.
TEST(Device, InstructionSetsRise) {
  EXPECT_LT(Simd::none, Simd::avx2);
  EXPECT_LT(Simd::avx2, Simd::avx512);
  EXPECT_LT(Simd::avx512, Simd::avx512_bf16);
}

TEST(Device, DetectionIsRepeatableAndBacked) {
  const Simd simd = detect_simd();
  EXPECT_EQ(simd, detect_simd());
  if (simd >= Simd::avx2) {
    EXPECT_TRUE(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"));
  }
  if (simd >= Simd::avx512) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512f"));
  }
}

TEST(Device, StartsWithoutPoolAndWithoutInstructionSets) {
  const Device device;
  EXPECT_EQ(device.pool, nullptr);
  EXPECT_EQ(device.simd, Simd::none);
}

}  // namespace
}  // namespace gannet
