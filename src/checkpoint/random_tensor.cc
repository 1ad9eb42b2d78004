#include "checkpoint/random_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/number_formats.h"

namespace gannet {
namespace {

constexpr uint64_t kBlockSize = 32;
// Octaves of block scales are uniform in -2..2; their root mean square is about 2, taken back here.
constexpr double kOctaveGain = 1.8;
constexpr double kSublayerGain = 0.3;

// The finaliser of SplitMix64: every bit of the result depends on every bit of the input.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// FNV-1a.
uint64_t hash(std::string_view text, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325U ^ mix(seed);
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  return mix(h);
}

// Mean and deviation of a tensor's numbers. Deviations are in units of 1 / sqrt(columns) where `per_column`.
struct Recipe {
  std::string_view suffix;
  double mean;
  double deviation;
  bool per_column;
};

// The first match counts; of what matches none, matrices have deviation 1 per column and vectors 0.1.
constexpr Recipe kRecipes[] = {
    {"norm.weight", 1, 0.2, false},
    {"norm1.weight", 1, 0.2, false},
    {"norm2.weight", 1, 0.2, false},
    {"q_weight", 1, 0.2, false},
    {"k_weight", 1, 0.2, false},
    {"_base", 0, 0.7, false},
    {"_scale", 0.8, 0.3, false},
    {"attn_sink", 0, 1, false},
    {"gate.bias", 0, 0.3, false},
    {"gate.bias_vl", 0, 0.3, false},
    {"embed.weight", 0, 1, false},  // token embeddings, draft embeddings and Engram tables
    {"markov_head.head.weight", 0, 1, true},
    {"head.weight", 0, 2, true},
    {"gate.weight", 0, 2, true},
    {"wgate.weight", 0, 2, true},
    {"image_start", 0, 1, false},
    {"image_end", 0, 1, false},
    {"image_newline", 0, 1, false},
    {"attn.wo_b.weight", 0, kSublayerGain, true},
    {"attn.wo.weight", 0, kSublayerGain, true},
    {".w2.weight", 0, kSublayerGain, true},  // of experts
    {"engram.wkv.weight", 0, kSublayerGain, true},
};

Recipe recipe_of(std::string_view name, bool matrix) {
  for (const auto& recipe : kRecipes) {
    if (name.ends_with(recipe.suffix)) return recipe;
  }
  return matrix ? Recipe{"", 0, 1, true} : Recipe{"", 0, 0.1, false};
}

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScale = ".scale";

}  // namespace

RandomTensor::RandomTensor(const TensorSpec& spec, uint64_t seed) : dtype_(spec.dtype) {
  std::string weight = spec.name;
  const bool is_scale = dtype_ == DType::f8_e8m0;
  columns_ = static_cast<uint64_t>(spec.shape.back());
  if (is_scale) {
    weight = weight.substr(0, weight.size() - kScale.size()).append(kWeight);
    block_columns_ = columns_;
    columns_ *= kBlockSize;
  } else {
    if (dtype_ == DType::i8) columns_ *= 2;
    block_columns_ = (columns_ + kBlockSize - 1) / kBlockSize;
  }
  fp4_ = weight.find(".experts.") != std::string::npos;
  row_scales_ = fp4_ || std::string_view(weight).ends_with("engram.embed.weight");
  value_key_ = hash(spec.name, seed);
  block_key_ = hash(weight + kScale.data(), seed);
  const bool has_blocks = is_scale || dtype_ == DType::f8_e4m3 || dtype_ == DType::i8;
  const auto recipe = recipe_of(weight, spec.shape.size() > 1);
  mean_ = recipe.mean;
  deviation_ = recipe.deviation;
  if (recipe.per_column) deviation_ /= std::sqrt(static_cast<double>(columns_));
  if (has_blocks && recipe.per_column) deviation_ /= kOctaveGain;
}

uint64_t RandomTensor::bits(uint64_t index) const {
  return mix(value_key_ + (index + 1) * 0x9e3779b97f4a7c15U);
}

// Sum of four 16-bit uniform numbers: close to normal, within 3.5 deviations, and exact.
float RandomTensor::normal(uint64_t index) const {
  constexpr int kHalf = 4 * 65535 / 2;
  constexpr double kDeviation = 37837.0;  // of the sum: sqrt(4 (2^32 - 1) / 12)
  const uint64_t word = bits(index);
  int sum = 0;
  for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int>((word >> shift) & 0xffff);
  return static_cast<float>((sum - kHalf) / kDeviation);
}

// Scales leave codes a deviation of 64 to 128 (E4M3) or 1.5 to 3 (E2M1), as the largest of a block's numbers would.
RandomTensor::Block RandomTensor::block(uint64_t index) const {
  constexpr uint64_t kZeroShare = 65536 * 2 / 100;
  constexpr uint64_t kSaturatedShare = 65536 * 5 / 100;
  const uint64_t word = mix(block_key_ + (index + 1) * 0x9e3779b97f4a7c15U);
  const auto draw = [word](int part) { return (word >> (16 * part)) & 0xffff; };
  const int octave = static_cast<int>(draw(0) * 5 >> 16) - 2;
  const double spread = std::ldexp(deviation_ * (static_cast<double>(draw(1)) / 65536 + 1) / 1.5, octave);
  const double finest = fp4_ ? 1.5 : 64.0;
  int exponent = 0;
  std::frexp(spread / finest, &exponent);
  --exponent;  // spread / 2^exponent is in [finest, 2 finest)
  if (!fp4_ && draw(2) < kSaturatedShare) --exponent;
  const auto code = static_cast<uint8_t>(std::clamp(exponent + 127, 1, 254));
  const bool zero = draw(3) < kZeroShare;
  return {code, zero ? 0.0F : static_cast<float>(std::ldexp(spread, -exponent))};
}

float RandomTensor::spread(uint64_t row, uint64_t column) const {
  return block((row_scales_ ? row : row / kBlockSize) * block_columns_ + column / kBlockSize).spread;
}

float RandomTensor::plain(uint64_t index) const {
  return static_cast<float>(mean_ + deviation_ * static_cast<double>(normal(index)));
}

// Codes of an FP8 or FP4 weight, from the code with that index on.
void RandomTensor::fill_codes(uint64_t first, std::span<std::byte> out) const {
  const uint64_t codes = dtype_ == DType::i8 ? 2 * out.size() : out.size();
  uint64_t row = first / columns_;
  uint64_t column = first % columns_;
  float deviation = spread(row, column);
  for (uint64_t i = 0; i < codes; ++i) {
    const float value = normal(first + i) * deviation;
    if (dtype_ == DType::i8) {
      const auto code = std::byte{float_to_e2m1(std::clamp(value, -kE2m1Max, kE2m1Max))};
      out[i / 2] = i % 2 == 0 ? code : out[i / 2] | code << 4;
    } else {
      out[i] = std::byte{float_to_e4m3(std::clamp(value, -kE4m3Max, kE4m3Max))};
    }
    if (++column == columns_) {
      column = 0;
      ++row;
    }
    if (column % kBlockSize == 0 && i + 1 < codes) deviation = spread(row, column);
  }
}

void RandomTensor::fill(int64_t begin, std::span<std::byte> out) const {
  const auto size = static_cast<uint64_t>(bytes_of(dtype_));
  const uint64_t first = static_cast<uint64_t>(begin) / size;
  if (dtype_ == DType::f8_e4m3) return fill_codes(first, out);
  if (dtype_ == DType::i8) return fill_codes(2 * first, out);
  for (uint64_t i = 0; i < out.size() / size; ++i) {
    const auto store = [&](auto value) { std::memcpy(out.data() + i * size, &value, sizeof(value)); };
    switch (dtype_) {
      case DType::f8_e8m0:
        store(block(first + i).scale);
        break;
      case DType::bf16:
        store(float_to_bf16(plain(first + i)));
        break;
      default:
        store(plain(first + i));
    }
  }
}

}  // namespace gannet
