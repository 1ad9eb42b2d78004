#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/config.h"

namespace gannet {

// Table rows of n-grams (spec: model 3.10): multiply-XOR hashes of the last compressed ids, modulo a prime per column.
class EngramHash {
 public:
  // `token_map` [vocab_size]: compressed id of each token id.
  EngramHash(const Config& config, std::vector<int32_t> token_map);

  int64_t columns() const { return columns_; }
  int32_t compressed(int32_t id) const { return token_map_[id]; }

  // What n-grams can still reach behind these ids: the last compressed ids, nearest last.
  std::vector<int32_t> history(std::span<const int32_t> ids) const;
  // The token with compressed id `current` has been read.
  void advance(int32_t current, std::vector<int32_t>& history) const;

  // Rows of the `engram`-th Engram layer for the token with compressed id `current`, whose predecessors' compressed ids
  // end with history.back(). Positions before the start read as pad. Writes columns() rows.
  void rows(int64_t engram, int32_t current, std::span<const int32_t> history, int64_t* out) const;

 private:
  struct Layer {
    std::vector<int64_t> multipliers;  // one per look-back distance, odd
    std::vector<int64_t> primes;       // one per column
    std::vector<int64_t> offsets;      // first table row of each column
  };
  std::vector<int32_t> token_map_;
  int32_t pad_;  // compressed
  int64_t heads_;
  int64_t columns_;
  int64_t reach_;  // tokens that n-grams look back
  std::vector<Layer> layers_;
};

// The odd multipliers of one layer: 2 v + 1 with v drawn as numpy's default_rng(10007 * layer).integers(0, bound,
// count) does, bound = (2^63 - 1) / compressed_vocab / 2.
std::vector<int64_t> engram_multipliers(int64_t layer, int64_t compressed_vocab, int64_t count);

}  // namespace gannet
