#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/json.h"

// What a JSON schema says, and whether a grammar can enforce it.
namespace gannet::text::grammar {

// The JSON types, as bits.
using Types = unsigned;
inline constexpr Types kNull = 1;
inline constexpr Types kBoolean = 2;
inline constexpr Types kInteger = 4;
inline constexpr Types kNumber = 8;  // includes integers, whose bit need not be set then
inline constexpr Types kString = 16;
inline constexpr Types kArray = 32;
inline constexpr Types kObject = 64;
inline constexpr Types kAnyType = kNull | kBoolean | kNumber | kString | kArray | kObject;

enum class SchemaForm {
  anything,      // no keyword that forbids any value
  nothing,       // the schema `false`
  reference,     // $ref
  literals,      // const or enum
  alternatives,  // anyOf, oneOf, or an allOf of one
  typed,         // type and its keywords
};

struct SchemaView {
  SchemaForm form = SchemaForm::anything;
  Types types = 0;                  // typed: at least one
  std::vector<const Json*> values;  // literals: those that fit a type beside them
  const Json::Array* alternatives = nullptr;
  bool exclusive = false;  // alternatives: exactly one may match (oneOf)
};

// Errors (invalid_input) name `path` and the keyword that a grammar cannot enforce, or that is malformed.
Result<SchemaView> view_schema(const Json& schema, const std::string& path);

// The schema that a local reference ("#", "#/$defs/x") names inside `root`.
Result<const Json*> resolve_reference(const Json& root, const Json& schema, const std::string& path);

// The number of a keyword that counts something; `absent` without it.
Result<int64_t> count_keyword(const Json& schema, std::string_view keyword, int64_t absent, const std::string& path);

// Whether it is certain that no value matches two of the schemas. References are looked up in `root`.
bool are_disjoint(const Json& root, const Json::Array& schemas);

}  // namespace gannet::text::grammar
