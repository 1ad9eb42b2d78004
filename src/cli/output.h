#pragma once

#include <string_view>

#include "base/error.h"

namespace gannet::cli {

// Results go to standard output in one piece; a full disk or a closed pipe behind it is an error like any other.
Status write_output(std::string_view text);

}  // namespace gannet::cli
