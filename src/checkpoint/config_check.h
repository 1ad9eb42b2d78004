#pragma once

#include <string>
#include <vector>

#include "checkpoint/config.h"

namespace gannet {

// Contradictions between fields that are each well-formed and in range; one line each, naming the field, its value and
// what would be right. Empty when there are none.
std::vector<std::string> contradictions(const Config& config);

}  // namespace gannet
