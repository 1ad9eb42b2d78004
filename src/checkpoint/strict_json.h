#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace gannet {

// Parses JSON that somebody else wrote. Beyond the grammar it refuses what a lenient parser would hide: invalid UTF-8,
// an object with the same key twice, nesting deeper than 32. `name` stands for the file in messages.
Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view name);

// How messages show a value: JSON text, shortened when long.
std::string shown(const nlohmann::json& value);

}  // namespace gannet
