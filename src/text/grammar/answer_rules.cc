#include "text/grammar/answer_rules.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_encoder.h"
#include "text/grammar/call_rules.h"
#include "text/grammar/pattern.h"
#include "text/grammar/rules.h"
#include "text/grammar/schema_rules.h"
#include "text/grammar/user_grammar.h"

namespace gannet::text::grammar {
namespace {

Result<std::string> finished(const Rules& rules, const Part& root, std::string_view field) {
  std::string ebnf = rules.ebnf(root.needs.front());
  if (ebnf.empty()) return invalid_input("{}: no value matches the schema", field);
  return ebnf;
}

// A rule for the text; not for a grammar of the client's own.
Result<Part> format_part(Rules& rules, const JsonRules& json, const ResponseFormat& format, const std::string& field) {
  using Kind = ResponseFormat::Kind;
  if (format.kind == Kind::json_schema) return SchemaRules(rules, json, format.schema, field).value();
  if (format.kind != Kind::regex) return json.object();
  auto pattern = whole_pattern(format.regex, PatternScope::whole);
  if (!pattern) return invalid_input("{}: {}", field, pattern.error().message);
  return rule(rules.add_regex(*pattern));
}

Result<std::string> calls_ebnf(const ChatRequest& request, CallFormat format) {
  Rules rules;
  const JsonRules json(rules);
  GANNET_TRY(const Part root, call_block(rules, json, request.tools, format));
  return finished(rules, root, "tools");
}

Result<std::string> format_ebnf(const ResponseFormat& format, const std::string& field) {
  if (format.kind == ResponseFormat::Kind::text) return std::string();
  if (format.kind == ResponseFormat::Kind::grammar) {
    auto checked = check_user_grammar(format.grammar);
    if (!checked) return invalid_input("{}: {}", field, checked.error().message);
    return format.grammar;
  }
  Rules rules;
  const JsonRules json(rules);
  GANNET_TRY(const Part root, format_part(rules, json, format, field));
  return finished(rules, root, field);
}

}  // namespace

Result<AnswerRules> answer_rules(const ChatRequest& request, std::optional<int32_t> dsml) {
  const ParseOptions parse = parse_options(request);
  const bool must_call = parse.tools && (request.must_call || request.tool_choice == ToolChoice::required);
  CallFormat calls{.dsml = dsml.value_or(0),
                   .opens = !parse.starts_in_tool_calls,
                   .parallel = request.parallel_tool_calls,
                   .only_strict = !must_call};
  if (must_call) {
    if (!dsml) return invalid_input("tool_choice: this model's tokenizer has no token for the markup of calls");
    GANNET_TRY(auto ebnf, calls_ebnf(request, calls));
    return AnswerRules{std::move(ebnf), "tools"};
  }
  const bool is_asked = request.structured_output.kind != ResponseFormat::Kind::text;
  const ResponseFormat& format = is_asked ? request.structured_output : request.response_format;
  const std::string field = is_asked ? "structured_outputs" : "response_format";
  const bool any_strict = parse.tools && std::any_of(request.tools.begin(), request.tools.end(),
                                                     [](const auto& tool) { return tool.strict; });
  if (format.kind == ResponseFormat::Kind::text && any_strict && dsml) {
    GANNET_TRY(auto ebnf, calls_ebnf(request, calls));
    return AnswerRules{std::move(ebnf), "tools", calls.opens};
  }
  if (format.kind == ResponseFormat::Kind::text || !parse.tools || !dsml) {
    GANNET_TRY(auto ebnf, format_ebnf(format, field));
    return AnswerRules{std::move(ebnf), field};
  }
  // The model may call instead of saying something of that form.
  if (format.kind == ResponseFormat::Kind::grammar) {
    return invalid_input("{}: a grammar cannot be combined with tools; set tool_choice to none", field);
  }
  Rules rules;
  const JsonRules json(rules);
  GANNET_TRY(const Part text, format_part(rules, json, format, field));
  GANNET_TRY(const Part block, call_block(rules, json, request.tools, calls));
  if (rules.ebnf(text.needs.front()).empty()) return invalid_input("{}: no value matches the schema", field);
  GANNET_TRY(auto ebnf, finished(rules, rule(rules.add({text, block})), field));
  return AnswerRules{std::move(ebnf), field};
}

}  // namespace gannet::text::grammar
