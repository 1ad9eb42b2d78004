#include "base/number_formats.h"

#include <algorithm>

namespace gannet {

float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  // Placing the seven bits at the top of a float's exponent and mantissa leaves the exponent 127 - 7 too small; the
  // multiplication corrects it and turns E4M3's subnormals into normal floats, exactly.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 20) * 0x1p120F));
}

uint8_t float_to_e4m3(float value) {
  const uint32_t sign = (std::bit_cast<uint32_t>(value) >> 24) & 0x80;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  const float magnitude = std::min(std::fabs(value), kE4m3Max);
  // Below 2^-6 the format counts in steps of 2^-9; above, in steps of an eighth of the power of two below the value.
  const int exponent = magnitude < 0x1p-6F ? -6 : std::ilogb(magnitude);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  // `steps` is 8..16 for normal values (16 carries into the exponent by itself) and 0..8 for subnormal ones.
  const uint32_t code = exponent == -6 ? steps : ((static_cast<uint32_t>(exponent + 7) << 3) + (steps - 8));
  return static_cast<uint8_t>(sign | code);
}

uint8_t float_to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  // A tie goes to the even code: <= where the lower code is even, < where it is odd.
  const int code = int{magnitude > 0.25F} + int{magnitude >= 0.75F} + int{magnitude > 1.25F} + int{magnitude >= 1.75F} +
                   int{magnitude > 2.5F} + int{magnitude >= 3.5F} + int{magnitude > 5.0F};
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

}  // namespace gannet
