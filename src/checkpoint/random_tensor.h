#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/config.h"
#include "checkpoint/manifest.h"

namespace gannet {

// The numbers of one tensor of a random checkpoint. Any part can be made on its own, and a weight knows the scales of
// the tensor beside it, so tensors of any size stream in any order. Only integer arithmetic and exactly rounded
// operations are used: the bytes are the same on every machine.
class RandomTensor {
 public:
  RandomTensor(const TensorSpec& spec, uint64_t seed);

  // Bytes [begin, begin + out.size()) of the tensor; both multiples of the element's size.
  void fill(int64_t begin, std::span<std::byte> out) const;

 private:
  // How weights of one scale block are made.
  struct Block {
    uint8_t scale;  // E8M0 code
    float spread;   // standard deviation of the codes under that scale; 0: a block of zeros
  };

  uint64_t bits(uint64_t index) const;
  float normal(uint64_t index) const;
  Block block(uint64_t index) const;
  float spread(uint64_t row, uint64_t column) const;
  float plain(uint64_t index) const;
  void fill_codes(uint64_t first, std::span<std::byte> out) const;

  DType dtype_;
  bool fp4_ = false;         // block() makes FP4 scales
  bool row_scales_ = false;  // each row has scales of its own
  uint64_t columns_ = 1;     // of the tensor, logical
  uint64_t block_columns_ = 1;
  uint64_t value_key_;
  uint64_t block_key_;
  double mean_ = 0;
  double deviation_ = 1;
};

}  // namespace gannet
