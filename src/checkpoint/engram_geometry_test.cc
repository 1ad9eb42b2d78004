#include "checkpoint/engram_geometry.h"

#include <gtest/gtest.h>

namespace gannet {
namespace {

// spec: model 3.10.
TEST(EngramGeometry, ReleasedPrimes) {
  const auto primes = engram_primes(16000000, 2, 4, 8);
  ASSERT_EQ(primes.size(), 2U);
  const std::vector<int64_t> first = {57,  79,  81,  97,  121, 129, 133, 183, 189, 207, 211, 253,
                                      277, 289, 307, 321, 339, 381, 393, 399, 403, 409, 447, 463};
  const std::vector<int64_t> second = {477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697,
                                       711, 729, 759, 769, 781, 799, 813, 819, 841, 877, 879, 889};
  ASSERT_EQ(primes[0].size(), 24U);
  ASSERT_EQ(primes[1].size(), 24U);
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(primes[0][i], 16000000 + first[i]);
    EXPECT_EQ(primes[1][i], 16000000 + second[i]);
  }
  EXPECT_EQ(engram_table_rows(primes), (std::vector<int64_t>{384006168, 384016682}));
}

TEST(EngramGeometry, SmallestPrimesFirst) {
  EXPECT_EQ(engram_primes(1, 1, 3, 4), (std::vector<std::vector<int64_t>>{{2, 3, 5, 7, 11, 13, 17, 19}}));
  EXPECT_EQ(engram_primes(13, 2, 2, 1), (std::vector<std::vector<int64_t>>{{13}, {17}}));
}

// Agrees with trial division where pseudoprimes are dense enough to matter, and beyond 31 bits.
TEST(EngramGeometry, PrimesAreExact) {
  const auto is_prime = [](int64_t n) {
    for (int64_t factor = 2; factor * factor <= n; ++factor) {
      if (n % factor == 0) return false;
    }
    return n > 1;
  };
  for (const int64_t start : {int64_t{2}, int64_t{25326000}, (int64_t{1} << 31) - 500, int64_t{1} << 31}) {
    int64_t expected = start;
    const auto primes = engram_primes(start, 1, 2, 40);
    for (const int64_t prime : primes[0]) {
      while (!is_prime(expected)) ++expected;
      EXPECT_EQ(prime, expected++);
    }
  }
}

}  // namespace
}  // namespace gannet
