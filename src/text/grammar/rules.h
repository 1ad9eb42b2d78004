#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::text::grammar {

// A rule of the grammar that is being built.
enum class RuleId : size_t {};

// A stretch of a rule's body in xgrammar's EBNF, and the rules that it cannot do without.
struct Part {
  std::string text;
  std::vector<RuleId> needs = {};
};

// `text` exactly.
Part literal(std::string_view text);
// The token itself, which no text can spell.
Part token(int32_t id);
Part rule(RuleId id);
// One after the other.
Part sequence(const std::vector<Part>& parts);
// `part` from `least` to `most` times; below 0: any number.
Part repeat(const Part& part, int64_t least, int64_t most);

// The rules of one grammar.
class Rules {
 public:
  // A rule to be defined later, once.
  RuleId declare();
  // One of the alternatives; without any, nothing matches.
  void define(RuleId id, std::vector<Part> alternatives);
  RuleId add(std::vector<Part> alternatives);
  // Whatever the whole regular expression matches. Equal ones share a rule.
  RuleId add_regex(std::string_view pattern);
  // The same without what must be escaped inside of a JSON string.
  RuleId add_unescaped_regex(std::string_view pattern);
  // At most `most_characters` of what the expression matches, which must be able to end after as many.
  RuleId add_limited_regex(std::string_view pattern, int64_t most_characters);
  // Rules in xgrammar's EBNF, of which `root` is the first; their names cannot collide with others.
  RuleId import(std::string_view ebnf);

  size_t bytes() const { return bytes_; }
  // The grammar from `root` on, without alternatives that could never end, such as an object that must hold itself.
  // Empty if nothing is left.
  std::string ebnf(RuleId root) const;

 private:
  struct Rule {
    std::vector<Part> alternatives;
    std::string options;   // in brackets after the name
    std::string imported;  // instead of alternatives
  };
  RuleId add_once(std::string body, std::string options);
  std::vector<bool> can_end() const;

  std::vector<Rule> rules_;
  std::map<std::string, RuleId> expressions_;
  size_t bytes_ = 0;
};

// For reading EBNF: whether a byte may stand in a rule's name, and the end of the string or character class that begins
// at `start`, or of the text.
bool is_name(char byte);
size_t end_of_quote(std::string_view text, size_t start);

}  // namespace gannet::text::grammar
