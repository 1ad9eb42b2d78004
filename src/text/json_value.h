#pragma once

#include <optional>

#include "text/json.h"

namespace gannet::text {

// A number of any kind as a double; nothing for other values. Integers beyond 2^53 are rounded.
std::optional<double> number_of(const Json& value);

// The order of keys does not count. An integer equals a float of the same value, as JavaScript writes 1.0 as 1; two
// integers must be equal to the digit.
bool same_value(const Json& left, const Json& right);

}  // namespace gannet::text
