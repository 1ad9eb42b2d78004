#pragma once

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

#include "text/grammar/schema_keywords.h"
#include "text/json_value.h"
#include "text/utf8.h"

// Judges values by JSON schemas in the plainest way, for the tests of this folder.
namespace gannet::text::test_schema {

inline size_t length_of(const std::string& text) {
  size_t length = 0;
  for (size_t at = 0; at < text.size(); next_code_point(text, at)) ++length;
  return length;
}

inline bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return number_of(value) && std::floor(*number_of(value)) == *number_of(value);
  if (type == "number") return value.is_number();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.boolean() != nullptr;
  if (type == "string") return value.is_string();
  return type == "array" ? value.is_array() : value.is_object();
}

inline double limit(const Json& schema, const char* key, double absent) {
  const Json* value = schema.find(key);
  return value == nullptr ? absent : *number_of(*value);
}

bool matches(const Json& root, const Json& schema, const Json& value);

inline bool matches_object(const Json& root, const Json& schema, const Json::Object& members) {
  const Json* properties = schema.find("properties");
  const Json* others = schema.find("additionalProperties");
  if (const Json* required = schema.find("required")) {
    for (const Json& name : *required->array()) {
      if (std::none_of(members.begin(), members.end(), [&](const auto& one) { return one.first == *name.string(); })) {
        return false;
      }
    }
  }
  return std::all_of(members.begin(), members.end(), [&](const auto& one) {
    const Json* known = properties == nullptr ? nullptr : properties->find(one.first);
    if (known == nullptr) known = others;
    return known == nullptr || matches(root, *known, one.second);
  });
}

inline bool matches_array(const Json& root, const Json& schema, const Json::Array& items) {
  const auto count = static_cast<double>(items.size());
  if (count < limit(schema, "minItems", 0) || count > limit(schema, "maxItems", 1e9)) return false;
  const Json* first = schema.find("prefixItems");
  for (size_t i = 0; i < items.size(); ++i) {
    const Json* known = first != nullptr && i < first->array()->size() ? &(*first->array())[i] : schema.find("items");
    if (known != nullptr && !matches(root, *known, items[i])) return false;
  }
  return true;
}

inline bool matches_scalar(const Json& schema, const Json& value) {
  if (const auto* text = value.string()) {
    const auto length = static_cast<double>(length_of(*text));
    if (length < limit(schema, "minLength", 0) || length > limit(schema, "maxLength", 1e9)) return false;
    const Json* pattern = schema.find("pattern");
    return pattern == nullptr || std::regex_search(*text, std::regex(*pattern->string()));
  }
  const auto number = number_of(value);
  if (!number) return true;
  if (const double of = limit(schema, "multipleOf", 0); of != 0 && std::fmod(*number, of) != 0) return false;
  return *number >= limit(schema, "minimum", -1e300) && *number <= limit(schema, "maximum", 1e300) &&
         *number > limit(schema, "exclusiveMinimum", -1e300) && *number < limit(schema, "exclusiveMaximum", 1e300);
}

inline bool matches_some(const Json& root, const Json& schema, const Json& value) {
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* list = schema.find(key);
    if (list == nullptr) continue;
    const auto count = std::count_if(list->array()->begin(), list->array()->end(),
                                     [&](const Json& one) { return matches(root, one, value); });
    if (count == 0 || (key == std::string("oneOf") && count != 1)) return false;
  }
  return true;
}

inline bool matches(const Json& root, const Json& schema, const Json& value) {
  if (const bool* all = schema.boolean()) return *all;
  if (schema.find("$ref") != nullptr) return matches(root, **grammar::resolve_reference(root, schema, ""), value);
  if (const Json* type = schema.find("type")) {
    const auto fits = [&](const Json& one) { return has_type(value, *one.string()); };
    if (type->is_string() ? !fits(*type) : std::none_of(type->array()->begin(), type->array()->end(), fits)) {
      return false;
    }
  }
  const auto equals = [&](const Json& one) { return python_json(one) == python_json(value); };
  if (const Json* one = schema.find("const"); one != nullptr && !equals(*one)) return false;
  if (const Json* list = schema.find("enum")) {
    if (std::none_of(list->array()->begin(), list->array()->end(), equals)) return false;
  }
  if (!matches_some(root, schema, value) || !matches_scalar(schema, value)) return false;
  if (const auto* members = value.object()) return matches_object(root, schema, *members);
  const auto* items = value.array();
  return items == nullptr || matches_array(root, schema, *items);
}

}  // namespace gannet::text::test_schema
