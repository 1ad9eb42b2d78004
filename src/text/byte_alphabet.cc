#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace gannet::text {
namespace {

constexpr size_t kBytes = 256;
constexpr size_t kAlphabetEnd = 0x100 + 68;  // one past the largest code point of the alphabet

constexpr bool stands_for_itself(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, kBytes> code_point_of{};
  std::array<int, kAlphabetEnd> byte_of{};  // -1 where the code point is not in the alphabet
};

constexpr Alphabet build_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  char32_t next_free = 0x100;
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const char32_t code_point = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next_free++;
    alphabet.code_point_of[byte] = code_point;
    alphabet.byte_of[code_point] = static_cast<int>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = build_alphabet();

}  // namespace

std::string spell_byte(unsigned char byte) {
  std::string spelling;
  append_utf8(spelling, kAlphabet.code_point_of[byte]);
  return spelling;
}

std::optional<std::string> spelled_bytes(std::string_view spelling) {
  std::string bytes;
  for (size_t position = 0; position < spelling.size();) {
    const char32_t code_point = next_code_point(spelling, position);
    if (code_point >= kAlphabetEnd || kAlphabet.byte_of[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[code_point]));
  }
  return bytes;
}

}  // namespace gannet::text
