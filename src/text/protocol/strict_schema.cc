#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "text/protocol/tools.h"

// Facts observed on the official API (spec: text, correction 6): which keywords of a strict schema survive, and in
// which order they are printed.

namespace gannet::text {
namespace {

using Rewritten = std::optional<Json>;

enum class Keyword { any_text, text_list, format, integer, number };

struct KeywordRule {
  std::string_view name;
  Keyword kind;
};

constexpr std::array<KeywordRule, 4> kStringKeywords = {{{"description", Keyword::any_text},
                                                         {"pattern", Keyword::any_text},
                                                         {"format", Keyword::format},
                                                         {"enum", Keyword::text_list}}};
constexpr std::array<std::string_view, 7> kNumberKeywords = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::array<std::string_view, 5> kFormats = {"email", "hostname", "ipv4", "ipv6", "uuid"};

const Json* present(const Json& schema, std::string_view key) {
  const Json* value = schema.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool is_integer(const Json& value) {
  const auto* natural = std::get_if<uint64_t>(&value.value());
  return std::holds_alternative<int64_t>(value.value()) ||
         (natural != nullptr && *natural <= static_cast<uint64_t>(INT64_MAX));
}

bool fits(const Json& value, Keyword kind) {
  switch (kind) {
    case Keyword::any_text:
      return value.is_string();
    case Keyword::format:
      return value.is_string() && std::find(kFormats.begin(), kFormats.end(), *value.string()) != kFormats.end();
    case Keyword::text_list:
      return value.is_array() && std::all_of(value.array()->begin(), value.array()->end(),
                                             [](const Json& element) { return element.is_string(); });
    case Keyword::integer:
      return is_integer(value);
    case Keyword::number:
      return value.is_number();
  }
  return false;
}

// Copies a keyword that is there; false if its value is of the wrong kind.
bool copy(const Json& schema, std::string_view key, Keyword kind, Json::Object& out) {
  const Json* value = present(schema, key);
  if (value == nullptr) return true;
  if (!fits(*value, kind)) return false;
  out.emplace_back(key, *value);
  return true;
}

Rewritten rewrite(const Json& schema, bool is_root);

Rewritten rewrite_string(const Json& schema) {
  Json::Object out = {{"type", "string"}};
  for (const auto& [name, kind] : kStringKeywords) {
    if (!copy(schema, name, kind, out)) return {};
  }
  return Json(std::move(out));
}

Rewritten rewrite_number(const Json& schema, const std::string& type) {
  Json::Object out = {{"type", type}};
  if (!copy(schema, "description", Keyword::any_text, out)) return {};
  const Keyword kind = type == "integer" ? Keyword::integer : Keyword::number;
  for (const std::string_view name : kNumberKeywords) {
    if (!copy(schema, name, kind, out)) return {};
  }
  return Json(std::move(out));
}

Rewritten rewrite_simple(const Json& schema, const Json& type) {
  Json::Object out = {{"type", type}};
  if (!copy(schema, "description", Keyword::any_text, out)) return {};
  return Json(std::move(out));
}

Rewritten rewrite_array(const Json& schema) {
  const Json* items = schema.find("items");
  if (items == nullptr) return {};
  auto element = rewrite(*items, false);
  if (!element) return {};
  Json::Object out = {{"type", "array"}, {"items", *std::move(element)}};
  if (!copy(schema, "description", Keyword::any_text, out)) return {};
  return Json(std::move(out));
}

std::optional<Json::Object> rewrite_members(const Json* schemas) {
  Json::Object out;
  if (schemas == nullptr) return out;
  if (!schemas->is_object()) return {};
  for (const auto& [name, schema] : *schemas->object()) {
    auto member = rewrite(schema, false);
    if (!member) return {};
    out.emplace_back(name, *std::move(member));
  }
  return out;
}

// "required" may be absent, or must name every property once.
bool requires_all(const Json* required, const Json::Object& properties) {
  if (required == nullptr) return true;
  if (!fits(*required, Keyword::text_list) || required->array()->size() != properties.size()) return false;
  std::unordered_set<std::string_view> names;
  for (const Json& name : *required->array()) names.insert(*name.string());
  return names.size() == properties.size() &&
         std::all_of(properties.begin(), properties.end(),
                     [&](const auto& member) { return names.contains(member.first); });
}

Rewritten rewrite_object(const Json& schema, bool is_root) {
  auto properties = rewrite_members(present(schema, "properties"));
  if (!properties || (properties->empty() && !is_root)) return {};
  if (const Json* others = present(schema, "additionalProperties")) {
    if (others->boolean() == nullptr || *others->boolean()) return {};
  }
  if (!requires_all(present(schema, "required"), *properties)) return {};
  Json::Array required;
  for (const auto& member : *properties) required.emplace_back(member.first);
  Json::Object out = {{"type", "object"},
                      {"properties", *std::move(properties)},
                      {"additionalProperties", false},
                      {"required", std::move(required)}};
  if (!copy(schema, "description", Keyword::any_text, out)) return {};
  // The official API knows the first name only; the second is JSON Schema's, and references need what it holds.
  for (const char* name : {"$def", "$defs"}) {
    const Json* definitions = present(schema, name);
    if (definitions == nullptr) continue;
    auto members = rewrite_members(definitions);
    if (!members) return {};
    out.emplace_back(name, *std::move(members));
  }
  return Json(std::move(out));
}

Rewritten rewrite_typed(const Json& schema, const Json& type, bool is_root) {
  if (const auto* alternatives = type.array()) {
    constexpr std::array<std::string_view, 5> kScalars = {"string", "number", "integer", "boolean", "null"};
    for (const Json& name : *alternatives) {
      if (!name.is_string() || std::find(kScalars.begin(), kScalars.end(), *name.string()) == kScalars.end()) return {};
    }
    return rewrite_simple(schema, type);
  }
  if (!type.is_string()) return {};
  const std::string& name = *type.string();
  if (name == "object") return rewrite_object(schema, is_root);
  if (name == "string") return rewrite_string(schema);
  if (name == "array") return rewrite_array(schema);
  if (name == "number" || name == "integer") return rewrite_number(schema, name);
  if (name == "boolean" || name == "null") return rewrite_simple(schema, type);
  return {};
}

Rewritten rewrite(const Json& schema, bool is_root) {
  if (const Json* type = schema.find("type")) return rewrite_typed(schema, *type, is_root);
  if (is_root) return {};
  if (const Json* alternatives = schema.find("anyOf")) {
    if (!alternatives->is_array()) return {};
    Json::Array rewritten;
    for (const Json& alternative : *alternatives->array()) {
      auto one = rewrite(alternative, false);
      if (!one) return {};
      rewritten.push_back(*std::move(one));
    }
    Json::Object out = {{"anyOf", std::move(rewritten)}};
    if (!copy(schema, "description", Keyword::any_text, out)) return {};
    return Json(std::move(out));
  }
  const Json* reference = schema.find("$ref");
  if (reference == nullptr || !reference->is_string()) return {};
  return Json(Json::Object{{"$ref", *reference}});
}

}  // namespace

Json strict_schema(const Json& schema) {
  // Parameters that were not given come as {}; strict mode gives them a type.
  if (schema.is_object() && schema.object()->empty()) return *rewrite(Json(Json::Object{{"type", "object"}}), true);
  return rewrite(schema, true).value_or(schema);
}

}  // namespace gannet::text
