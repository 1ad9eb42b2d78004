#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "base/number_formats.h"

// The three block formats of activations and caches (spec: model 3.1): each packs and unpacks whole groups.
namespace gannet {

inline constexpr int kMxGroup = 32;  // channels that share a scale in Q8 and Q4mx
inline constexpr int kNvGroup = 16;  // channels that share a scale in Q4nv

// Bytes of n packed channels: all codes, then all scales.
constexpr int64_t q8_bytes(int64_t n) {
  return n + n / kMxGroup;
}
constexpr int64_t q4mx_bytes(int64_t n) {
  return n / 2 + n / kMxGroup;
}
constexpr int64_t q4nv_bytes(int64_t n) {
  return n / 2 + n / kNvGroup;
}

// Smallest power of two >= amax * fp32(1 / limit), as an E8M0 code. amax > 0.
inline uint8_t power_of_two_scale(float amax, float limit) {
  const uint32_t bits = std::bit_cast<uint32_t>(amax * (1.0F / limit));
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  return static_cast<uint8_t>(std::min<uint32_t>(exponent, 254));
}

// The scale of a Q8 group whose largest magnitude is amax.
inline uint8_t q8_scale(float amax) {
  return power_of_two_scale(std::max(amax, 1e-4F), kE4m3Max);
}

// Q8: E4M3 codes with one E8M0 scale for 32 channels. codes [n], scales [n / 32]; n a multiple of 32.
void q8_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void q8_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x);

// Q4mx (MXFP4): E2M1 nibbles, even channel low, with one E8M0 scale for 32 channels. codes [n / 2], scales [n / 32].
void q4mx_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void q4mx_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x);

// Q4nv (NVFP4 without a global scale): E2M1 nibbles with one E4M3 scale for 16 channels. codes [n / 2], scales [n /
// 16].
void q4nv_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales);
void q4nv_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x);

// x rounded through the format and back.
void q8_round(std::span<float> x);
void q4mx_round(std::span<float> x);

}  // namespace gannet
