#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// The number formats once more, for tests only: in double, from their definitions (spec: model 1.5, 3.1), sharing no
// code with number_formats.h and quantize.h.
namespace gannet::oracle {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline double bf16_value(int code) {
  const double sign = (code & 0x8000) != 0 ? -1 : 1;
  const int exponent = (code >> 7) & 0xff;
  const int mantissa = code & 0x7f;
  if (exponent == 0xff) return mantissa != 0 ? kNaN : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134));
}

inline double e4m3_value(int code) {
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return kNaN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
}

inline double e2m1_value(int code) {
  const double sign = (code & 8) != 0 ? -1 : 1;
  const int exponent = (code >> 1) & 3;
  const int mantissa = code & 1;
  return sign * (exponent == 0 ? 0.5 * mantissa : std::ldexp(2 + mantissa, exponent - 2));
}

inline double e8m0_value(int code) {
  return code == 255 ? kNaN : std::ldexp(1.0, code - 127);
}

// A normal double rounded to `bits` significant bits, ties to even.
inline double round_significand(double value, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

// bf16 of a value in bf16's normal range.
inline double round_bf16(double value) {
  return round_significand(value, 8);
}

// Nearest of the values of codes 0 .. last (which rise from 0), ties to the even code, saturating; sign kept.
template <class Value>
double round_to_codes(double x, int last, const Value& value) {
  const double magnitude = std::min(std::fabs(x), value(last));
  int best = 0;
  for (int code = 1; code <= last; ++code) {
    const double distance = std::fabs(value(code) - magnitude);
    const double shortest = std::fabs(value(best) - magnitude);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return std::copysign(value(best), x);
}

inline double round_e4m3(double x) {
  return round_to_codes(x, 126, e4m3_value);
}

inline double round_e2m1(double x) {
  return round_to_codes(x, 7, e2m1_value);
}

inline double largest_magnitude(std::span<const float> x) {
  double amax = 0;
  for (const float value : x) amax = std::max(amax, std::fabs(static_cast<double>(value)));
  return amax;
}

// Smallest power of two that is no smaller than fp32(amax * fp32(1 / limit)).
inline double power_of_two_scale(double amax, double limit) {
  const auto reciprocal = static_cast<float>(1 / limit);
  const auto product = static_cast<float>(amax * static_cast<double>(reciprocal));
  return std::exp2(std::ceil(std::log2(static_cast<double>(product))));
}

// The three block formats: what each channel becomes. A quotient by a power of two is exact in double, as in fp32; by
// Q4nv's E4M3 scale it is rounded to fp32 first.
inline std::vector<double> q8(std::span<const float> x) {
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double scale = power_of_two_scale(std::max(1e-4, largest_magnitude(x.subspan(i / 32 * 32, 32))), 448);
    result.push_back(round_e4m3(static_cast<double>(x[i]) / scale) * scale);
  }
  return result;
}

inline std::vector<double> q4mx(std::span<const float> x) {
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double amax = std::max(std::ldexp(6.0, -126), largest_magnitude(x.subspan(i / 32 * 32, 32)));
    const double scale = power_of_two_scale(amax, 6);
    result.push_back(round_e2m1(static_cast<double>(x[i]) / scale) * scale);
  }
  return result;
}

inline std::vector<double> q4nv(std::span<const float> x) {
  std::vector<double> result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double amax = std::max(std::ldexp(6.0, -9), largest_magnitude(x.subspan(i / 16 * 16, 16)));
    const double scale = round_e4m3(static_cast<double>(static_cast<float>(amax / 6)));
    const auto quotient = static_cast<float>(static_cast<double>(x[i]) / scale);
    result.push_back(round_e2m1(static_cast<double>(quotient)) * scale);
  }
  return result;
}

}  // namespace gannet::oracle
