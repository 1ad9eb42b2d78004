#include "checkpoint/engram_geometry.h"

#include <numeric>

#include "base/error.h"

namespace gannet {
namespace {

uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (base %= modulus; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = result * base % modulus;
    base = base * base % modulus;
  }
  return result;
}

// Whether `n` passes the Miller-Rabin test to `base`; n odd, n - 1 = odd * 2^twos.
bool probably_prime(uint64_t n, uint64_t base, uint64_t odd, int twos) {
  uint64_t x = power_modulo(base, odd, n);
  if (x == 1 || x == n - 1) return true;
  for (int i = 1; i < twos; ++i) {
    x = x * x % n;
    if (x == n - 1) return true;
  }
  return false;
}

// Exact below 3,215,031,751: no composite number below it passes for all of 2, 3, 5, 7. Products of residues fit in 64
// bits there.
bool is_prime(uint64_t n) {
  constexpr uint64_t kBases[] = {2, 3, 5, 7};
  if (n < 2) return false;
  for (const uint64_t base : kBases) {
    if (n % base == 0) return n == base;
  }
  uint64_t odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const uint64_t base : kBases) {
    if (!probably_prime(n, base, odd, twos)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::vector<int64_t>> engram_primes(int64_t vocab_size, int64_t layers, int64_t max_ngram_size,
                                                int64_t heads) {
  GANNET_CHECK(vocab_size >= 1 && vocab_size <= int64_t{1} << 31);
  std::vector<std::vector<int64_t>> primes(static_cast<size_t>(layers));
  auto candidate = static_cast<uint64_t>(vocab_size);
  for (auto& columns : primes) {
    for (int64_t column = 0; column < (max_ngram_size - 1) * heads; ++column) {
      while (!is_prime(candidate)) ++candidate;
      columns.push_back(static_cast<int64_t>(candidate++));
    }
  }
  return primes;
}

std::vector<int64_t> engram_table_rows(const std::vector<std::vector<int64_t>>& primes) {
  std::vector<int64_t> rows;
  for (const auto& columns : primes) rows.push_back(std::accumulate(columns.begin(), columns.end(), int64_t{0}));
  return rows;
}

}  // namespace gannet
