#pragma once

#include <vector>

#include "checkpoint/config.h"

namespace gannet {

// The two rotary tables (spec: model 3.1, "RoPE"): local for layers without global attention, compressed for all
// others.
enum class RopeTable { local, compressed };
std::vector<float> rope_table(const Config& config, RopeTable table);

}  // namespace gannet
