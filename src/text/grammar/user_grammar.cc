#include "text/grammar/user_grammar.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "text/grammar/rules.h"

namespace gannet::text::grammar {
namespace {

constexpr size_t kMostBytes = 64 * 1024;
constexpr int kDeepest = 100;
constexpr size_t kLongestNumber = 4;  // of digits in a repetition
constexpr std::array<std::string_view, 4> kTokenMacros = {"Token", "ExcludeToken", "TokenTagDispatch", "TagDispatch"};

Status check_name(std::string_view ebnf, size_t start, size_t end) {
  const std::string_view name = ebnf.substr(start, end - start);
  const bool names_tokens = std::find(kTokenMacros.begin(), kTokenMacros.end(), name) != kTokenMacros.end();
  const size_t next = std::min(ebnf.find_first_not_of(" \t\r\n", end), ebnf.size());
  if (names_tokens && next < ebnf.size() && ebnf[next] == '(') {
    return invalid_input("the grammar uses {}(), which is not supported; it must describe text", name);
  }
  return {};
}

}  // namespace

Status check_user_grammar(std::string_view ebnf) {
  if (ebnf.size() > kMostBytes) {
    return invalid_input("the grammar has {} bytes; at most {} are supported", ebnf.size(), kMostBytes);
  }
  int depth = 0;
  for (size_t at = 0; at < ebnf.size();) {
    const char byte = ebnf[at];
    size_t end = at + 1;
    if (byte == '"' || byte == '[') {
      end = end_of_quote(ebnf, at);
    } else if (byte == '#') {
      end = std::min(ebnf.find('\n', at), ebnf.size());
    } else if (byte == '{') {
      end = std::min(ebnf.find('}', at), ebnf.size());
      for (size_t digit = at + 1, digits = 0; digit < end; ++digit) {
        digits = std::isdigit(static_cast<unsigned char>(ebnf[digit])) != 0 ? digits + 1 : 0;
        if (digits > kLongestNumber) return invalid_input("the grammar repeats something more than 9999 times");
      }
    } else if (byte == '(') {
      if (++depth > kDeepest) return invalid_input("the grammar's parentheses nest more than {} deep", kDeepest);
    } else if (byte == ')') {
      --depth;
    } else if (is_name(byte)) {
      while (end < ebnf.size() && is_name(ebnf[end])) ++end;
      GANNET_TRY_STATUS(check_name(ebnf, at, end));
    }
    at = end;
  }
  return {};
}

}  // namespace gannet::text::grammar
