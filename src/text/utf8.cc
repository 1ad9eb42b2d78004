#include "text/utf8.h"

#include <simdjson.h>

namespace gannet::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Well-formed sequences, Unicode 16.0 table 3-7: how many bytes follow the lead, and the range of the first of them.
struct Follow {
  size_t count;
  unsigned char low;
  unsigned char high;
};

Follow follow_of(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit utf8_unit(std::string_view bytes, size_t position) {
  const auto lead = static_cast<unsigned char>(bytes[position]);
  if (lead < 0x80) return {Utf8Unit::Kind::character, 1};
  const Follow follow = follow_of(lead);
  if (follow.count == 0) return {Utf8Unit::Kind::broken, 1};
  for (size_t i = 1; i <= follow.count; ++i) {
    if (position + i == bytes.size()) return {Utf8Unit::Kind::unfinished, i};
    const auto byte = static_cast<unsigned char>(bytes[position + i]);
    const unsigned char low = i == 1 ? follow.low : 0x80;
    const unsigned char high = i == 1 ? follow.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Unit::Kind::broken, i};
  }
  return {Utf8Unit::Kind::character, follow.count + 1};
}

size_t valid_utf8_length(std::string_view bytes) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) return bytes.size();
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Unit unit = utf8_unit(bytes, position);
    if (unit.kind != Utf8Unit::Kind::character) break;
    position += unit.length;
  }
  return position;
}

void append_lossy_utf8(std::string& out, std::string_view bytes) {
  size_t copied = 0;
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Unit unit = utf8_unit(bytes, position);
    if (unit.kind != Utf8Unit::Kind::character) {
      out.append(bytes.substr(copied, position - copied)).append(kReplacement);
      copied = position + unit.length;
    }
    position += unit.length;
  }
  out.append(bytes.substr(copied));
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  const auto low_bits = [&](size_t i) { return byte(i) & 0x3F; };
  const size_t length = utf8_length(text[position]);
  char32_t code_point = byte(0);
  if (length == 2) code_point = ((byte(0) & 0x1F) << 6) | low_bits(1);
  if (length == 3) code_point = ((byte(0) & 0x0F) << 12) | (low_bits(1) << 6) | low_bits(2);
  if (length == 4) code_point = ((byte(0) & 0x07) << 18) | (low_bits(1) << 12) | (low_bits(2) << 6) | low_bits(3);
  position += length;
  return code_point;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace gannet::text
