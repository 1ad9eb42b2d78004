#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

// The number formats of the checkpoint and the caches (spec: model 1.5, 3.1). All decode exactly to bf16 and therefore
// to float.
namespace gannet {

// bf16: the upper half of a float.
inline float bf16_to_float(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

// Round to nearest even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float round_to_bf16(float value) {
  return bf16_to_float(float_to_bf16(value));
}

// E8M0: a power of two, 2^(code - 127); code 0 is 2^-127, code 255 is NaN.
inline float e8m0_to_float(uint8_t code) {
  if (code == 0) return std::bit_cast<float>(uint32_t{1} << 22);
  if (code == 255) return std::bit_cast<float>(uint32_t{0x7fc00000});
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// 1 / e8m0_to_float(code): a power of two, too. Not for code 255.
inline float e8m0_to_inverse(uint8_t code) {
  return e8m0_to_float(static_cast<uint8_t>(254 - code));
}

// E4M3FN: sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity, largest 448, code 0x7f (and 0xff) is NaN.
inline constexpr float kE4m3Max = 448.0F;
inline float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7f;
  // Placing the seven bits at the top of a float's exponent and mantissa leaves the exponent 127 - 7 too small; the
  // multiplication corrects it and turns E4M3's subnormals into normal floats, exactly.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120F;
  return std::bit_cast<float>(sign | (magnitude == 0x7f ? 0x7fc00000 : std::bit_cast<uint32_t>(value)));
}

// The nearest E4M3 value, ties to even. Values beyond +-448 saturate, NaN stays NaN.
inline float round_to_e4m3(float value) {
  const float magnitude = std::min(std::fabs(value), kE4m3Max);
  // Below 2^-6 the format counts in steps of 2^-9; above, in steps of an eighth of the power of two below the value.
  // Floats at 2^20 times that power have just this step.
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) & 0x7f800000);
  const float shift = std::max(power, 0x1p-6F) * 0x1p20F;
  return std::copysign((magnitude + shift) - shift, value);
}
// The code of that value.
inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(round_to_e4m3(value));
  const uint32_t sign = (bits >> 24) & 0x80;
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  if (std::isnan(magnitude)) return static_cast<uint8_t>(sign | 0x7f);
  const uint32_t code = magnitude < 0x1p-6F ? static_cast<uint32_t>(static_cast<int>(magnitude * 512))
                                            : (std::bit_cast<uint32_t>(magnitude) >> 20) - (120 << 3);
  return static_cast<uint8_t>(sign | code);
}

// E2M1: codes 0..7 are 0, .5, 1, 1.5, 2, 3, 4, 6; codes 8..15 their negatives.
inline constexpr float kE2m1Max = 6.0F;
inline constexpr float kE2m1Values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                          -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
inline float e2m1_to_float(uint8_t code) {
  return kE2m1Values[code & 15];
}
// Round to nearest, ties to the even code; the caller clamps to +-6.
uint8_t float_to_e2m1(float value);

}  // namespace gannet
