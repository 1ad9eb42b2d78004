#include "text/grammar/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"

namespace gannet::text::grammar {
namespace {

size_t index(RuleId id) {
  return static_cast<size_t>(id);
}

std::string name_of(size_t rule) {
  return fmt::format("r{}", rule);
}

// Inside double quotes, as xgrammar reads it.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char byte : text) {
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += byte;
    } else if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    } else {
      out += byte;
    }
  }
  return out + '"';
}

// The same rules with `prefix` in front of every name.
std::string renamed(std::string_view ebnf, std::string_view prefix) {
  std::string out;
  size_t at = 0;
  while (at < ebnf.size()) {
    const char byte = ebnf[at];
    size_t end = at + 1;
    if (byte == '"' || byte == '[') {
      end = end_of_quote(ebnf, at);
    } else if (byte == '{') {
      end = std::min(ebnf.find('}', at), ebnf.size());
    } else if (is_name(byte)) {
      while (end < ebnf.size() && is_name(ebnf[end])) ++end;
      out += prefix;
    }
    out += ebnf.substr(at, end - at);
    at = end;
  }
  return out;
}

// With {0,1} in place of ?. xgrammar 0.2.8 makes (ab+)? match "b" as well: the loop at its end may be entered from its
// start.
std::string without_question_marks(std::string_view pattern) {
  std::string out;
  bool after_repetition = false;  // a ? there asks for the shortest match, which does not change what matches
  for (size_t at = 0; at < pattern.size();) {
    const char byte = pattern[at];
    size_t end = at + 1;
    if (byte == '\\') ++end;
    if (byte == '[') end = end_of_quote(pattern, at);
    end = std::min(end, pattern.size());
    const std::string_view piece = pattern.substr(at, end - at);
    const bool is_optional = piece == "?" && !out.ends_with('(');
    if (!is_optional) {
      out += piece;
    } else if (!after_repetition) {
      out += "{0,1}";
    }
    after_repetition = is_optional || piece == "*" || piece == "+" || piece == "}";
    at = end;
  }
  return out;
}

}  // namespace

bool is_name(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '_' || byte == '.' || byte == '-';
}

size_t end_of_quote(std::string_view text, size_t start) {
  const char closing = text[start] == '"' ? '"' : ']';
  size_t at = start + 1;
  while (at < text.size() && text[at] != closing) at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

Part literal(std::string_view text) {
  return {quoted(text)};
}

Part token(int32_t id) {
  return {fmt::format("Token({})", id)};
}

Part rule(RuleId id) {
  return {name_of(index(id)), {id}};
}

Part sequence(const std::vector<Part>& parts) {
  Part whole;
  for (const Part& part : parts) {
    if (!whole.text.empty()) whole.text += ' ';
    whole.text += part.text;
    whole.needs.insert(whole.needs.end(), part.needs.begin(), part.needs.end());
  }
  return whole.text.empty() ? literal("") : whole;
}

Part repeat(const Part& part, int64_t least, int64_t most) {
  std::string times = most < 0 ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most);
  if (least == 0 && most < 0) times = "*";
  return {"(" + part.text + ")" + times, part.needs};
}

RuleId Rules::declare() {
  rules_.emplace_back();
  return RuleId{rules_.size() - 1};
}

void Rules::define(RuleId id, std::vector<Part> alternatives) {
  for (const Part& part : alternatives) bytes_ += part.text.size();
  rules_[index(id)].alternatives = std::move(alternatives);
}

RuleId Rules::add(std::vector<Part> alternatives) {
  const RuleId id = declare();
  define(id, std::move(alternatives));
  return id;
}

RuleId Rules::add_regex(std::string_view pattern) {
  return add_once("Regex(" + quoted(without_question_marks(pattern)) + ")", "");
}

RuleId Rules::add_unescaped_regex(std::string_view pattern) {
  return add_once("Regex(" + quoted(without_question_marks(pattern)) + ", json_string=true)", "");
}

RuleId Rules::add_limited_regex(std::string_view pattern, int64_t most_characters) {
  return add_once("Regex(" + quoted(without_question_marks(pattern)) + ")",
                  fmt::format("[max_chars={}]", most_characters));
}

RuleId Rules::add_once(std::string body, std::string options) {
  const auto [place, is_new] = expressions_.try_emplace(options + body, RuleId{rules_.size()});
  if (!is_new) return place->second;
  const RuleId id = add({{std::move(body)}});
  rules_[index(id)].options = std::move(options);
  return id;
}

RuleId Rules::import(std::string_view ebnf) {
  const RuleId id = declare();
  rules_[index(id)].imported = renamed(ebnf, name_of(index(id)) + "_");
  define(id, {{name_of(index(id)) + "_root"}});
  bytes_ += ebnf.size();
  return id;
}

std::vector<bool> Rules::can_end() const {
  std::vector<bool> ends(rules_.size());
  const auto finishes = [&](const Part& part) {
    return std::all_of(part.needs.begin(), part.needs.end(), [&](RuleId id) { return ends[index(id)]; });
  };
  for (bool changed = true; changed;) {
    changed = false;
    // From the back: most rules need later ones.
    for (size_t i = rules_.size(); i-- > 0;) {
      const auto& alternatives = rules_[i].alternatives;
      if (ends[i] || !std::any_of(alternatives.begin(), alternatives.end(), finishes)) continue;
      ends[i] = true;
      changed = true;
    }
  }
  return ends;
}

std::string Rules::ebnf(RuleId root) const {
  const std::vector<bool> ends = can_end();
  if (!ends[index(root)]) return {};
  std::string text = "root ::= " + name_of(index(root)) + "\n";
  std::vector<bool> reached(rules_.size());
  std::vector<size_t> open = {index(root)};
  reached[index(root)] = true;
  while (!open.empty()) {
    const size_t current = open.back();
    open.pop_back();
    const Rule& rule = rules_[current];
    text += name_of(current) + rule.options + " ::= ";
    bool first = true;
    for (const Part& part : rule.alternatives) {
      if (!std::all_of(part.needs.begin(), part.needs.end(), [&](RuleId id) { return ends[index(id)]; })) continue;
      if (!std::exchange(first, false)) text += " | ";
      text += part.text;
      for (const RuleId id : part.needs) {
        if (!reached[index(id)]) open.push_back(index(id));
        reached[index(id)] = true;
      }
    }
    text += '\n' + rule.imported;
    if (!rule.imported.empty() && rule.imported.back() != '\n') text += '\n';
  }
  return text;
}

}  // namespace gannet::text::grammar
