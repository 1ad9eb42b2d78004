#include "text/answer_judge.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "text/json_value.h"

namespace gannet::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// Letters beyond ASCII count as parts of words.
bool in_word(char letter) {
  return is_digit(letter) || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         static_cast<unsigned char>(letter) >= 0x80;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return out;
}

bool holds_words(std::string_view text, std::string_view words) {
  const std::string low = lower(text);
  const std::string wanted = lower(words);
  for (size_t at = low.find(wanted); at != low.npos; at = low.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    const bool begins = at == 0 || !in_word(low[at - 1]) || !in_word(wanted.front());
    const bool ends = end == low.size() || !in_word(low[end]) || !in_word(wanted.back());
    if (begins && ends) return true;
  }
  return false;
}

bool digits_at(std::string_view text, size_t at, size_t count) {
  if (at + count > text.size()) return false;
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(at), text.begin() + static_cast<ptrdiff_t>(at + count),
                     is_digit);
}

// With a sign, a fraction and commas between thousands: "-1,234.5".
std::optional<double> last_number(std::string_view text) {
  std::string spelling;
  for (size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    const bool negative = at > 0 && text[at - 1] == '-' && (at == 1 || !in_word(text[at - 2]));
    spelling = negative ? "-" : "";
    bool fraction = false;
    for (; at < text.size(); ++at) {
      const bool thousands = text[at] == ',' && !fraction && digits_at(text, at + 1, 3) && !digits_at(text, at + 4, 1);
      if (thousands) continue;
      const bool point = text[at] == '.' && !fraction && digits_at(text, at + 1, 1);
      if (!point && !is_digit(text[at])) break;
      fraction = fraction || point;
      spelling += text[at];
    }
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(spelling.data(), spelling.data() + spelling.size(), value);
  if (spelling.empty() || error != std::errc()) return std::nullopt;
  return value;
}

constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};

bool is_texts(const Json& value) {
  const auto* list = value.array();
  return list != nullptr &&
         std::all_of(list->begin(), list->end(), [](const Json& element) { return element.is_string(); });
}

Status check_schema(const Json& schema);

Status check_keyword(const std::string& name, const Json& value) {
  if (name == "type") {
    const auto* type = value.string();
    if (type != nullptr && std::find(kTypes.begin(), kTypes.end(), *type) != kTypes.end()) return {};
    return invalid_input("json_schema: type is {}; it must be one of {}", compact_json(value), fmt::join(kTypes, ", "));
  }
  if (name == "properties" && value.is_object()) {
    for (const auto& [key, property] : *value.object()) GANNET_TRY_STATUS(check_schema(property));
    return {};
  }
  if (name == "items") return check_schema(value);
  const bool known = name == "const" || name == "title" || name == "description" ||
                     (name == "enum" && value.is_array()) || (name == "required" && is_texts(value)) ||
                     (name == "additionalProperties" && value.boolean() != nullptr);
  if (known) return {};
  return invalid_input("json_schema: {} is {}; a judge does not know that", name, compact_json(value));
}

Status check_schema(const Json& schema) {
  if (!schema.is_object()) return invalid_input("json_schema: {}; it must be an object", json_kind(schema));
  for (const auto& [name, value] : *schema.object()) GANNET_TRY_STATUS(check_keyword(name, value));
  return {};
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.boolean() != nullptr;
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (!value.is_number()) return false;
  return type == "number" || *number_of(value) == std::trunc(*number_of(value));
}

bool conforms(const Json& value, const Json& schema);

bool members_conform(const Json& value, const Json& schema) {
  const Json* required = schema.find("required");
  if (required != nullptr) {
    for (const Json& key : *required->array()) {
      if (value.find(*key.string()) == nullptr) return false;
    }
  }
  const Json* properties = schema.find("properties");
  const Json* others = schema.find("additionalProperties");
  for (const auto& [key, member] : *value.object()) {
    const Json* property = properties != nullptr ? properties->find(key) : nullptr;
    if (property != nullptr && !conforms(member, *property)) return false;
    if (property == nullptr && others != nullptr && !*others->boolean()) return false;
  }
  return true;
}

// `schema` is one that check_schema let pass.
bool conforms(const Json& value, const Json& schema) {
  const Json* type = schema.find("type");
  if (type != nullptr && !has_type(value, *type->string())) return false;
  const Json* constant = schema.find("const");
  if (constant != nullptr && !same_value(value, *constant)) return false;
  const auto is_value = [&value](const Json& option) { return same_value(value, option); };
  const Json* options = schema.find("enum");
  if (options != nullptr && std::none_of(options->array()->begin(), options->array()->end(), is_value)) return false;
  const Json* items = schema.find("items");
  if (items != nullptr && value.is_array()) {
    const auto fits = [items](const Json& element) { return conforms(element, *items); };
    if (!std::all_of(value.array()->begin(), value.array()->end(), fits)) return false;
  }
  return !value.is_object() || members_conform(value, schema);
}

tl::unexpected<Error> wrong_kind(const std::string& rule, const Json& value, std::string_view right) {
  return invalid_input("{} is {}; it must be {}", rule, compact_json(value), right);
}

}  // namespace

Result<std::vector<AnswerJudge::Call>> AnswerJudge::calls_of(const Json& value) {
  const Json::Array one = {value};
  std::vector<Call> calls;
  for (const Json& call : value.is_array() ? *value.array() : one) {
    const Json* name = call.find("name");
    const Json* arguments = call.find("arguments");
    if (name == nullptr || !name->is_string() || arguments == nullptr || !arguments->is_object()) {
      return wrong_kind("tool_call", call, "an object with a name and arguments");
    }
    calls.push_back({*name->string(), *arguments});
  }
  return calls;
}

Status AnswerJudge::add_rule(const std::string& name, const Json& value) {
  if (name == "exact") {
    if (!value.is_string()) return wrong_kind(name, value, "a string");
    exact_ = std::string(trimmed(*value.string()));
  } else if (name == "number") {
    number_ = number_of(value);
    if (!number_) return wrong_kind(name, value, "a number");
  } else if (name == "contains") {
    const Json::Array list = value.is_array() ? *value.array() : Json::Array{value};
    for (const Json& text : list) {
      if (!text.is_string() || text.string()->empty()) return wrong_kind(name, value, "a text or a list of texts");
      contains_.push_back(*text.string());
    }
  } else if (name == "json") {
    json_ = value;
  } else if (name == "json_schema") {
    GANNET_TRY_STATUS(check_schema(value));
    schema_ = value;
  } else if (name == "tool_call") {
    GANNET_TRY(calls_, calls_of(value));
  } else if (name == "no_call") {
    if (value.boolean() == nullptr || !*value.boolean()) return wrong_kind(name, value, "true");
    no_call_ = true;
  } else {
    return invalid_input("'{}' is no rule; there are exact, number, contains, json, json_schema, tool_call and no_call",
                         name);
  }
  return {};
}

Result<AnswerJudge> AnswerJudge::from_json(const Json& rules) {
  if (!rules.is_object() || rules.object()->empty()) {
    return invalid_input("it is {}; it must be an object with at least one rule", compact_json(rules));
  }
  AnswerJudge judge;
  for (const auto& [name, value] : *rules.object()) GANNET_TRY_STATUS(judge.add_rule(name, value));
  return judge;
}

bool AnswerJudge::accepts(const ParsedMessage& answer) const {
  if (answer.finish_reason == FinishReason::length) return false;
  return accepts_calls(answer.tool_calls) && accepts_content(trimmed(answer.content));
}

bool AnswerJudge::accepts_content(std::string_view content) const {
  if (no_call_ && content.empty()) return false;
  if (exact_ && content != *exact_) return false;
  if (number_ && last_number(content) != number_) return false;
  const auto stands = [content](const std::string& words) { return holds_words(content, words); };
  if (!std::all_of(contains_.begin(), contains_.end(), stands)) return false;
  return (!json_ && !schema_) || accepts_json(content);
}

bool AnswerJudge::accepts_json(std::string_view content) const {
  const auto value = parse_json(content);
  if (!value) return false;
  return (!json_ || same_value(*value, *json_)) && (!schema_ || conforms(*value, *schema_));
}

bool AnswerJudge::accepts_calls(const std::vector<ParsedCall>& found) const {
  if (no_call_ && !found.empty()) return false;
  if (!calls_) return true;
  std::vector<Call> missing = *calls_;
  for (const ParsedCall& call : found) {
    const auto arguments = parse_json(call.arguments);
    const auto match = std::find_if(missing.begin(), missing.end(), [&](const Call& wanted) {
      return wanted.name == call.name && arguments && same_value(*arguments, wanted.arguments);
    });
    if (match == missing.end()) return false;
    missing.erase(match);
  }
  return missing.empty();
}

}  // namespace gannet::text
