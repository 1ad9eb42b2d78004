#include "text/grammar/string_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gannet::text::grammar {
namespace {

// February 29 only in years that are surely leap years: divisible by 4, not by 100.
constexpr std::string_view kDate =
    R"((\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|)"
    R"(\d\d(0[48]|[2468][048]|[13579][26])-02-29))";
constexpr std::string_view kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+\-]([01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kLabel = R"([A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?)";
constexpr std::string_view kByte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

std::string duration() {
  const std::string day = R"(\d{1,6}D)";
  const std::string month = R"(\d{1,6}M()" + day + ")?";
  const std::string year = R"(\d{1,6}Y()" + month + ")?";
  const std::string second = R"(\d{1,6}S)";
  const std::string minute = R"(\d{1,6}M()" + second + ")?";
  const std::string hour = R"(\d{1,6}H()" + minute + ")?";
  const std::string time = fmt::format("T({}|{}|{})", hour, minute, second);
  return fmt::format(R"(P(\d{{1,6}}W|({}|{}|{})({})?|{}))", year, month, day, time, time);
}

std::string email() {
  constexpr std::string_view kAtom = R"([A-Za-z0-9_+\-]+)";
  return fmt::format(R"({}(\.{})*@{}(\.{})+)", kAtom, kAtom, R"([A-Za-z0-9]+(\-[A-Za-z0-9]+)*)",
                     R"([A-Za-z0-9]+(\-[A-Za-z0-9]+)*)");
}

// Eight groups, or fewer around one "::".
std::string ipv6() {
  constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";
  std::string pattern = fmt::format("({}:){{7}}{}", kGroup, kGroup);
  for (int left = 0; left <= 7; ++left) {
    const int right = 7 - left;
    pattern += '|';
    if (left > 0) pattern += fmt::format("({}:){{{}}}{}", kGroup, left - 1, kGroup);
    pattern += "::";
    if (right > 0) pattern += fmt::format("({}(:{}){{0,{}}})?", kGroup, kGroup, right - 1);
  }
  return pattern;
}

std::string uri() {
  constexpr std::string_view kCharacter = R"(([A-Za-z0-9._~:/?@!$&'()*+,;=\-]|%[0-9A-Fa-f]{2}))";
  return fmt::format(R"([A-Za-z][A-Za-z0-9+.\-]*:{}+(#{}*)?)", kCharacter, kCharacter);
}

constexpr std::array<std::string_view, 9> kRefused = {"idn-email",     "idn-hostname",          "iri",
                                                      "iri-reference", "uri-reference",         "uri-template",
                                                      "json-pointer",  "relative-json-pointer", "regex"};

}  // namespace

StringFormat string_format(std::string_view name) {
  if (name == "date") return {std::string(kDate)};
  if (name == "time") return {std::string(kTime)};
  if (name == "date-time") return {fmt::format("{}T{}", kDate, kTime)};
  if (name == "duration") return {duration()};
  if (name == "email") return {email()};
  if (name == "hostname") return {fmt::format(R"({}(\.{})*)", kLabel, kLabel)};
  if (name == "ipv4") return {fmt::format(R"(({}\.){{3}}{})", kByte, kByte)};
  if (name == "ipv6") return {ipv6()};
  if (name == "uuid") return {"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"};
  if (name == "uri") return {uri()};
  return {{}, std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()};
}

}  // namespace gannet::text::grammar
