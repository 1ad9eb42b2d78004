#pragma once

#include <cstdint>
#include <vector>

namespace gannet {

// The primes that Engram hashes its n-grams with (spec: model 3.10): one for each (layer, n-gram size, head), the
// smallest unused ones >= vocab_size in that order. Returns [layers][(max_ngram_size - 1) * heads]; column
// (size - 2) * heads + head. vocab_size must be from 1 to 2^31.
std::vector<std::vector<int64_t>> engram_primes(int64_t vocab_size, int64_t layers, int64_t max_ngram_size,
                                                int64_t heads);

// Table rows of each layer: the sum of its primes.
std::vector<int64_t> engram_table_rows(const std::vector<std::vector<int64_t>>& primes);

}  // namespace gannet
