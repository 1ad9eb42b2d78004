#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::text {

// The byte-level alphabet in which a vocabulary spells its tokens: printable Latin-1 bytes stand for themselves, the
// 68 others for U+0100 onwards in ascending order.

// Spelling of one byte (one character, one or two bytes of UTF-8).
std::string spell_byte(unsigned char byte);

// The bytes that `spelling` (valid UTF-8) stands for; nothing if a character of it is not in the alphabet.
std::optional<std::string> spelled_bytes(std::string_view spelling);

}  // namespace gannet::text
