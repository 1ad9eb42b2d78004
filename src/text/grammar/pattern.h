#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace gannet::text::grammar {

// How much of a text a regular expression is about.
enum class PatternScope {
  whole,   // all of it
  inside,  // any part of it, as in a JSON schema's "pattern"
};

// The expression that matches the same texts as a whole, without anchors. Error (invalid_input, without a field's
// name): what a grammar cannot keep, such as lookarounds, back references, word boundaries and anchors in the middle,
// and repetitions that unfold into too much.
Result<std::string> whole_pattern(std::string_view pattern, PatternScope scope);

// Inside square brackets.
std::string class_character(char32_t code_point);

}  // namespace gannet::text::grammar
