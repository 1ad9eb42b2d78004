#pragma once

#include <cstdint>

namespace gannet::text {

// General categories of Unicode 16.0 as the pre-tokenizer's regular expressions group them. `mark` is Mn, Mc and Me.
// `white_space` is the property White_Space: 25 characters, without U+001C to U+001F and U+180E.
enum class CharClass : uint8_t { other, letter, mark, number, punctuation, symbol, white_space };

// Class of any value; those above U+10FFFF are `other`.
CharClass char_class(char32_t code_point);

}  // namespace gannet::text
