#include "text/parser/markup_scanner.h"

#include <array>
#include <span>

#include "text/template/control_tokens.h"

namespace gannet::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::array<std::string_view, 4> kCallsNames = {"calls", "tool_calls", "toolcalls", "function_calls"};
constexpr std::array<std::string_view, 1> kInvokeName = {"invoke"};
constexpr std::array<std::string_view, 1> kParameterName = {"parameter"};

struct Spelling {
  std::string_view text;
  char byte;
};
constexpr std::array<Spelling, 2> kSpellings = {{{control::kThinkEnd, kThinkEndByte}, {control::kDsml, kDsmlByte}}};

std::string spell(std::string_view marked, bool with_control) {
  std::string text;
  text.reserve(marked.size());
  bool in_control = false;
  for (const char byte : marked) {
    switch (byte) {
      case kThinkEndByte:
        text += control::kThinkEnd;
        break;
      case kDsmlByte:
        text += control::kDsml;
        break;
      case kControlStartByte:
        in_control = true;
        break;
      case kControlEndByte:
        in_control = false;
        break;
      default:
        if (with_control || !in_control) text += byte;
    }
  }
  return text;
}

// Moves `position` past `literal`.
Match match_literal(std::string_view text, size_t& position, std::string_view literal) {
  const std::string_view rest = text.substr(position);
  if (rest.starts_with(literal)) {
    position += literal.size();
    return Match::yes;
  }
  return literal.starts_with(rest) ? Match::more : Match::no;
}

// "<" or "</", the DSML token, an optional space, one of the names.
TagMatch match_word(std::string_view marked, std::string_view opening, std::span<const std::string_view> names) {
  size_t position = 0;
  if (const Match match = match_literal(marked, position, opening); match != Match::yes) return {match, 0};
  if (position == marked.size()) return {Match::more, 0};
  if (marked[position++] != kDsmlByte) return {};
  if (position < marked.size() && marked[position] == ' ') ++position;
  TagMatch result;
  for (const std::string_view name : names) {
    size_t end = position;
    const Match match = match_literal(marked, end, name);
    if (match == Match::yes) return {Match::yes, end};
    if (match == Match::more) result.match = Match::more;
  }
  return result;
}

// A word as above, then optional white space and ">".
TagMatch match_tag(std::string_view marked, std::string_view opening, std::span<const std::string_view> names) {
  TagMatch result = match_word(marked, opening, names);
  if (result.match != Match::yes) return result;
  const size_t position = skip_space(marked, result.length);
  if (position - result.length > kMostTagSpace) return {};
  if (position == marked.size()) return {Match::more, 0};
  if (marked[position] != '>') return {};
  return {Match::yes, position + 1};
}

}  // namespace

void append_unmarked(std::string& out, std::string_view text) {
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= static_cast<unsigned char>(kControlStartByte)) {
      out += kReplacement;
    } else {
      out += byte;
    }
  }
}

void append_control(std::string& out, std::string_view spelling) {
  out += kControlStartByte;
  append_unmarked(out, spelling);
  out += kControlEndByte;
}

std::string spelled_out(std::string_view marked) {
  return spell(marked, true);
}
std::string readable(std::string_view marked) {
  return spell(marked, false);
}

void MarkupLexer::push(std::string_view piece, std::string& out) {
  pending_ += piece;
  const std::string_view text = pending_;
  size_t start = 0;
  size_t position = 0;
  while (position < text.size()) {
    const std::string_view rest = text.substr(position);
    size_t length = 0;
    bool may_become_token = false;
    for (const Spelling& spelling : kSpellings) {
      if (rest.starts_with(spelling.text)) {
        append_unmarked(out, text.substr(start, position - start));
        out += spelling.byte;
        length = spelling.text.size();
      } else if (spelling.text.starts_with(rest)) {
        may_become_token = true;
      }
    }
    if (may_become_token) break;
    position += length == 0 ? 1 : length;
    if (length > 0) start = position;
  }
  append_unmarked(out, text.substr(start, position - start));
  pending_.erase(0, position);
}

void MarkupLexer::finish(std::string& out) {
  append_unmarked(out, pending_);
  pending_.clear();
}

TagMatch match_calls_open(std::string_view marked) {
  return match_tag(marked, "<", kCallsNames);
}
TagMatch match_calls_close(std::string_view marked) {
  return match_tag(marked, "</", kCallsNames);
}
TagMatch match_invoke_close(std::string_view marked) {
  return match_tag(marked, "</", kInvokeName);
}
TagMatch match_parameter_close(std::string_view marked) {
  return match_tag(marked, "</", kParameterName);
}
TagMatch match_parameter_word(std::string_view marked) {
  return match_word(marked, "<", kParameterName);
}

TagMatch match_invoke_word(std::string_view marked) {
  const TagMatch word = match_word(marked, "<", kInvokeName);
  if (word.match != Match::yes) return word;
  if (word.length == marked.size()) return {Match::more, 0};
  const char next = marked[word.length];
  return is_space(next) || next == '>' || next == '/' ? word : TagMatch{};
}

bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

size_t skip_space(std::string_view text, size_t position) {
  while (position < text.size() && is_space(text[position])) ++position;
  return position;
}

}  // namespace gannet::text
