#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/json.h"

namespace gannet::text::grammar {

// What minimum, maximum, their exclusive forms and multipleOf leave of the numbers.
struct NumberRange {
  bool whole = false;           // integers only
  std::vector<int64_t> values;  // all of them, if they are few
  std::string ebnf;             // or the rules for them; empty: no limits
};

// Errors (invalid_input) name `path` and the keyword.
Result<NumberRange> read_number_range(const Json& schema, bool whole, const std::string& path);

}  // namespace gannet::text::grammar
