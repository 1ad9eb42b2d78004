#include "text/protocol/structured_output.h"

#include <array>
#include <string>
#include <utility>

namespace gannet::text {
namespace {

constexpr size_t kMostChoices = 1024;

// A grammar's string literal.
std::string literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char byte : text) {
    if (byte == '"' || byte == '\\') quoted += '\\';
    if (byte == '\n') {
      quoted += "\\n";
    } else if (byte == '\r') {
      quoted += "\\r";
    } else if (byte == '\t') {
      quoted += "\\t";
    } else {
      quoted += byte;
    }
  }
  return quoted + "\"";
}

Result<std::string> choice_grammar(const Json& value, const std::string& path) {
  const auto* choices = value.array();
  if (choices == nullptr) return wrong_type(path, "a list of strings", value);
  if (choices->empty()) return invalid_input("{}: empty; expected at least one string", path);
  if (choices->size() > kMostChoices) {
    return invalid_input("{}: {} strings; at most {} are supported", path, choices->size(), kMostChoices);
  }
  std::string grammar = "root ::= ";
  for (size_t index = 0; index < choices->size(); ++index) {
    const auto* text = (*choices)[index].string();
    if (text == nullptr) return wrong_type(fmt::format("{}[{}]", path, index), "a string", (*choices)[index]);
    if (index > 0) grammar += " | ";
    grammar += literal(*text);
  }
  return grammar;
}

// The schema itself, or its JSON text.
Result<Json> schema_of(const Json& value, const std::string& path) {
  const auto* text = value.string();
  if (text == nullptr) {
    GANNET_TRY_STATUS(check_schema(value, path));
    return value;
  }
  auto parsed = parse_json(*text);
  if (!parsed) return invalid_input("{}: the text is not JSON: {}", path, parsed.error().message);
  GANNET_TRY_STATUS(check_schema(*parsed, path));
  return parsed;
}

class Reader {
 public:
  explicit Reader(ResponseFormat& format) : format_(format) {}

  // `kind` is json, json_object, regex, choice or grammar.
  Status read(const Fields& owner, std::string_view key, std::string_view kind) {
    const Json* value = owner.get(key);
    if (value == nullptr) return {};
    const std::string path = owner.path(key);
    if (kind == "json_object") {
      const bool* wanted = value->boolean();
      if (wanted == nullptr) return wrong_type(path, "true or false", *value);
      if (!*wanted) return {};
    }
    if (!first_.empty()) return invalid_input("{}: cannot be combined with {}", path, first_);
    first_ = path;
    return set(*value, path, kind);
  }

 private:
  Status set(const Json& value, const std::string& path, std::string_view kind) {
    if (kind == "json_object") {
      format_.kind = ResponseFormat::Kind::json_object;
    } else if (kind == "json") {
      format_.kind = ResponseFormat::Kind::json_schema;
      GANNET_TRY(format_.schema, schema_of(value, path));
    } else if (kind == "choice") {
      format_.kind = ResponseFormat::Kind::grammar;
      GANNET_TRY(format_.grammar, choice_grammar(value, path));
    } else {
      const auto* text = value.string();
      if (text == nullptr) return wrong_type(path, "a string", value);
      if (text->empty()) return invalid_input("{}: empty; expected at least one character", path);
      format_.kind = kind == "regex" ? ResponseFormat::Kind::regex : ResponseFormat::Kind::grammar;
      (kind == "regex" ? format_.regex : format_.grammar) = *text;
    }
    return {};
  }

  ResponseFormat& format_;
  std::string first_;
};

}  // namespace

Status check_schema(const Json& schema, std::string_view path) {
  if (schema.is_object() || schema.boolean() != nullptr) return {};
  return wrong_type(path, "a JSON schema", schema);
}

Status read_structured_output(const Fields& body, ResponseFormat& format) {
  Reader reader(format);
  GANNET_TRY(const auto outputs, body.object("structured_outputs"));
  if (outputs) {
    for (const std::string_view kind : {"json", "json_object", "regex", "choice", "grammar"}) {
      GANNET_TRY_STATUS(reader.read(*outputs, kind, kind));
    }
    if (outputs->has("structural_tag")) {
      return invalid_input("{}: not supported; expected one of json, json_object, regex, choice, grammar",
                           outputs->path("structural_tag"));
    }
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOlder = {
      {{"guided_json", "json"}, {"guided_regex", "regex"}, {"guided_choice", "choice"}, {"guided_grammar", "grammar"}}};
  for (const auto& [key, kind] : kOlder) GANNET_TRY_STATUS(reader.read(body, key, kind));
  return {};
}

}  // namespace gannet::text
