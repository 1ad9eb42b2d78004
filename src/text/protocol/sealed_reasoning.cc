#include "text/protocol/sealed_reasoning.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace gannet::text {
namespace {

constexpr std::string_view kMark = "gannet1.";
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::string seal_reasoning(std::string_view reasoning) {
  std::string sealed(kMark);
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : reasoning) {
    bits = bits << 8U | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) sealed += kDigits[bits >> static_cast<unsigned>(count - 6) & 63U];
  }
  if (count > 0) sealed += kDigits[bits << static_cast<unsigned>(6 - count) & 63U];
  return sealed;
}

std::optional<std::string> unseal_reasoning(std::string_view sealed) {
  if (!sealed.starts_with(kMark)) return {};
  std::string reasoning;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : sealed.substr(kMark.size())) {
    const size_t value = kDigits.find(digit);
    if (value == kDigits.npos) return {};
    bits = bits << 6U | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    reasoning += static_cast<char>(bits >> static_cast<unsigned>(count) & 255U);
  }
  if (valid_utf8_length(reasoning) != reasoning.size()) return {};
  return reasoning;
}

}  // namespace gannet::text
