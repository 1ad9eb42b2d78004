#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/json.h"
#include "text/message_parser.h"

namespace gannet::text {

// Says whether an answer is right, by rules that stand in a task of `gannet eval`. All given rules must hold:
//   {"exact": TEXT}          the content is TEXT, but for space around it
//   {"number": N}            the last number in the content is N
//   {"contains": TEXT}       TEXT, or each of a list of texts, stands in the content as whole words, in either case
//   {"json": VALUE}          the content is JSON of that value; keys may come in any order
//   {"json_schema": SCHEMA}  the content is JSON of that form
//   {"tool_call": CALL}      the calls are these: {"name", "arguments"}, or a list of such in any order
//   {"no_call": true}        no tool is called, and there is content
// An answer that was cut off is never right.
class AnswerJudge {
 public:
  // Errors (invalid_input) name the rule: an unknown one, a value of the wrong kind, a keyword of JSON Schema that is
  // not one of type, enum, const, properties, required, additionalProperties (yes or no), items, title and description.
  static Result<AnswerJudge> from_json(const Json& rules);

  bool accepts(const ParsedMessage& answer) const;

 private:
  struct Call {
    std::string name;
    Json arguments;
  };
  static Result<std::vector<Call>> calls_of(const Json& value);
  Status add_rule(const std::string& name, const Json& value);
  bool accepts_content(std::string_view content) const;
  bool accepts_json(std::string_view content) const;
  bool accepts_calls(const std::vector<ParsedCall>& found) const;

  std::optional<std::string> exact_;
  std::optional<double> number_;
  std::vector<std::string> contains_;
  std::optional<Json> json_;
  std::optional<Json> schema_;
  std::optional<std::vector<Call>> calls_;
  bool no_call_ = false;
};

}  // namespace gannet::text
