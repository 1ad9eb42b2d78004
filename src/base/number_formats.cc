#include "base/number_formats.h"

namespace gannet {

uint8_t float_to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  // A tie goes to the even code: <= where the lower code is even, < where it is odd.
  const int code = int{magnitude > 0.25F} + int{magnitude >= 0.75F} + int{magnitude > 1.25F} + int{magnitude >= 1.75F} +
                   int{magnitude > 2.5F} + int{magnitude >= 3.5F} + int{magnitude > 5.0F};
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

}  // namespace gannet
