#include "base/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/number_formats.h"

namespace gannet {
namespace {

float largest_magnitude(std::span<const float> x) {
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::fabs(value));  // ignores NaN
  return amax;
}

uint8_t q4mx_scale(std::span<const float> group) {
  return power_of_two_scale(std::max(largest_magnitude(group), 6 * 0x1p-126F), kE2m1Max);
}

uint8_t q4nv_scale(std::span<const float> group) {
  return float_to_e4m3(std::max(largest_magnitude(group), 6 * 0x1p-9F) / 6.0F);
}

uint8_t to_e2m1(float value, float scale) {
  return float_to_e2m1(std::clamp(value / scale, -kE2m1Max, kE2m1Max));
}

void pack_nibbles(std::span<const float> group, float scale, uint8_t* codes) {
  for (size_t i = 0; i < group.size(); i += 2) {
    codes[i / 2] = static_cast<uint8_t>(to_e2m1(group[i], scale) | (to_e2m1(group[i + 1], scale) << 4));
  }
}

void unpack_nibbles(const uint8_t* codes, float scale, std::span<float> group) {
  for (size_t i = 0; i < group.size(); i += 2) {
    group[i] = e2m1_to_float(codes[i / 2] & 15) * scale;
    group[i + 1] = e2m1_to_float(codes[i / 2] >> 4) * scale;
  }
}

}  // namespace

void q8_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    const auto group = x.subspan(g * kMxGroup, kMxGroup);
    scales[g] = q8_scale(largest_magnitude(group));
    const float inverse = e8m0_to_inverse(scales[g]);
    for (int i = 0; i < kMxGroup; ++i) codes[g * kMxGroup + i] = float_to_e4m3(group[i] * inverse);
  }
}

void q8_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    const float scale = e8m0_to_float(scales[g]);
    for (size_t i = g * kMxGroup; i < (g + 1) * kMxGroup; ++i) x[i] = e4m3_to_float(codes[i]) * scale;
  }
}

void q4mx_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    const auto group = x.subspan(g * kMxGroup, kMxGroup);
    scales[g] = q4mx_scale(group);
    pack_nibbles(group, e8m0_to_float(scales[g]), codes + g * kMxGroup / 2);
  }
}

void q4mx_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    unpack_nibbles(codes + g * kMxGroup / 2, e8m0_to_float(scales[g]), x.subspan(g * kMxGroup, kMxGroup));
  }
}

void q4nv_pack(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  GANNET_CHECK(x.size() % kNvGroup == 0);
  for (size_t g = 0; g < x.size() / kNvGroup; ++g) {
    const auto group = x.subspan(g * kNvGroup, kNvGroup);
    scales[g] = q4nv_scale(group);
    pack_nibbles(group, e4m3_to_float(scales[g]), codes + g * kNvGroup / 2);
  }
}

void q4nv_unpack(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  GANNET_CHECK(x.size() % kNvGroup == 0);
  for (size_t g = 0; g < x.size() / kNvGroup; ++g) {
    unpack_nibbles(codes + g * kNvGroup / 2, e4m3_to_float(scales[g]), x.subspan(g * kNvGroup, kNvGroup));
  }
}

void q8_round(std::span<float> x) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    const auto group = x.subspan(g * kMxGroup, kMxGroup);
    const uint8_t code = q8_scale(largest_magnitude(group));
    const float scale = e8m0_to_float(code);
    const float inverse = e8m0_to_inverse(code);
    for (float& value : group) value = round_to_e4m3(value * inverse) * scale;
  }
}

void q4mx_round(std::span<float> x) {
  GANNET_CHECK(x.size() % kMxGroup == 0);
  for (size_t g = 0; g < x.size() / kMxGroup; ++g) {
    const auto group = x.subspan(g * kMxGroup, kMxGroup);
    const float scale = e8m0_to_float(q4mx_scale(group));
    for (float& value : group) value = e2m1_to_float(to_e2m1(value, scale)) * scale;
  }
}

}  // namespace gannet
