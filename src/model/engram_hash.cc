#include "model/engram_hash.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/engram_geometry.h"

namespace gannet {
namespace {

__extension__ using uint128 = unsigned __int128;

// numpy's SeedSequence for a seed of one or two 32-bit words: spreads it over a pool of four words and draws the
// generator's initial state from the pool.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&constant](uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ (value >> 16);
    };
    pool_ = {hash(static_cast<uint32_t>(seed)), hash(static_cast<uint32_t>(seed >> 32)), hash(0), hash(0)};
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9ddU * pool_[to] - 0x4973f715U * hash(pool_[from]);
        pool_[to] = mixed ^ (mixed >> 16);
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> words{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] |= static_cast<uint64_t>(value) << (32 * (i % 2));
    }
    return words;
  }

 private:
  std::array<uint32_t, 4> pool_;
};

// numpy's default generator: PCG64 (XSL-RR 128/64).
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).state();
    increment_ = (wide(words[2], words[3]) << 1) | 1;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  uint64_t next() {
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<int>(state_ >> 122);
    return (folded >> turn) | (folded << (-turn & 63));
  }

  // Uniform in [0, bound), bound > 2^32, by the high half of a product; low halves in the uneven remainder are redrawn.
  uint64_t below(uint64_t bound) {
    uint128 product = static_cast<uint128>(next()) * bound;
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) product = static_cast<uint128>(next()) * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  static uint128 wide(uint64_t high, uint64_t low) { return (static_cast<uint128>(high) << 64) | low; }
  void step() { state_ = state_ * wide(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_; }

  uint128 state_ = 0;
  uint128 increment_ = 0;
};

constexpr uint64_t kSeedStep = 10007;

}  // namespace

std::vector<int64_t> engram_multipliers(int64_t layer, int64_t compressed_vocab, int64_t count) {
  const uint64_t bound = static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(compressed_vocab) / 2;
  Pcg64 generator(kSeedStep * static_cast<uint64_t>(layer));
  std::vector<int64_t> multipliers(count);
  for (auto& multiplier : multipliers) multiplier = static_cast<int64_t>(2 * generator.below(bound) + 1);
  return multipliers;
}

EngramHash::EngramHash(const Config& config, std::vector<int32_t> token_map)
    : token_map_(std::move(token_map)),
      pad_(token_map_.at(config.engram_pad_token_id)),
      heads_(config.engram_n_heads),
      columns_((config.engram_max_ngram_size - 1) * config.engram_n_heads),
      reach_(config.engram_max_ngram_size - 1) {
  auto primes = engram_primes(config.engram_vocab_size, static_cast<int64_t>(config.engram_layer_ids.size()),
                              config.engram_max_ngram_size, config.engram_n_heads);
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    Layer layer{.multipliers = engram_multipliers(config.engram_layer_ids[i], config.engram_compressed_vocab_size,
                                                  config.engram_max_ngram_size),
                .primes = std::move(primes[i]),
                .offsets = {}};
    int64_t offset = 0;
    for (const int64_t prime : layer.primes) {
      layer.offsets.push_back(offset);
      offset += prime;
    }
    layers_.push_back(std::move(layer));
  }
}

std::vector<int32_t> EngramHash::history(std::span<const int32_t> ids) const {
  std::vector<int32_t> history;
  for (const int32_t id : ids.last(std::min<size_t>(ids.size(), reach_))) history.push_back(compressed(id));
  return history;
}

void EngramHash::advance(int32_t current, std::vector<int32_t>& history) const {
  history.push_back(current);
  if (std::ssize(history) > reach_) history.erase(history.begin());
}

void EngramHash::rows(int64_t engram, int32_t current, std::span<const int32_t> history, int64_t* out) const {
  const Layer& layer = layers_[engram];
  int64_t rolling = current * layer.multipliers[0];
  int64_t column = 0;
  for (size_t back = 1; back < layer.multipliers.size(); ++back) {
    const int32_t token = back <= history.size() ? history[history.size() - back] : pad_;
    rolling ^= token * layer.multipliers[back];
    for (int64_t h = 0; h < heads_; ++h, ++column) out[column] = rolling % layer.primes[column] + layer.offsets[column];
  }
}

}  // namespace gannet
