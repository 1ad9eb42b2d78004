#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gannet::text {

// What stands at one place of a byte string that is meant to be UTF-8.
struct Utf8Unit {
  enum class Kind {
    character,   // one whole character
    broken,      // the longest start of a character that what follows makes impossible, or one stray byte
    unfinished,  // the start of a character, cut by the end of the bytes
  };
  Kind kind;
  size_t length;  // bytes, at least 1
};

// Reads the unit at bytes[position]; position < bytes.size().
Utf8Unit utf8_unit(std::string_view bytes, size_t position);

// Offset of the first byte that is not part of a whole character; bytes.size() if there is none.
size_t valid_utf8_length(std::string_view bytes);

// Appends `bytes`, each broken or unfinished unit replaced by one U+FFFD (Unicode's recommended practice, "maximal
// subparts").
void append_lossy_utf8(std::string& out, std::string_view bytes);

// Code point at text[position] of valid UTF-8; moves `position` past it.
char32_t next_code_point(std::string_view text, size_t& position);

// Bytes of the character that begins with `lead`, in valid UTF-8.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// `code_point` must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace gannet::text
