#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace gannet::text {

// A JSON value as the chat protocol sees it: keys keep their order, a repeated key keeps its first place and its last
// value, integers stay integers up to 64 bits, larger ones become floating point, and "-0" is the float -0.0.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  using Value = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  Json() : value_(nullptr) {}
  Json(bool value) : value_(value) {}                      // NOLINT(google-explicit-constructor)
  Json(int64_t value) : value_(value) {}                   // NOLINT(google-explicit-constructor)
  Json(uint64_t value) : value_(value) {}                  // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}    // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_number() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_) ||
           std::holds_alternative<double>(value_);
  }

  // nullptr unless the value is of that kind.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  const Value& value() const { return value_; }

  // The member of that name; nullptr if there is none or this is no object.
  const Json* find(std::string_view key) const;

 private:
  Value value_;
};

// What the text names: "null", "a boolean", "a number", "a string", "a list", "an object".
std::string_view json_kind(const Json& value);

// Containers deeper than this are refused everywhere, as the official package does.
inline constexpr int kMaxJsonDepth = 127;

// The whole text must be one JSON value. Errors (invalid_input) say where: bad UTF-8, lone surrogates, numbers outside
// the range of double, nesting over kMaxJsonDepth, trailing text.
Result<Json> parse_json(std::string_view text);

// As Python's json.dumps(value, ensure_ascii=False) prints it: ", " and ": ", floats in Python's repr.
std::string python_json(const Json& value);
// Spaces as in Python, floats as in compact_json: how the official package writes the input of an Anthropic tool_use.
std::string spaced_json(const Json& value);
// Without spaces, floats as the official package writes them in compact JSON (1e16, 1e-7).
std::string compact_json(const Json& value);
// `"text"` with JSON escapes; non-ASCII stays as it is.
std::string json_quote(std::string_view text);
// Escapes the inside of a JSON string, without the quotes.
void append_json_escaped(std::string& out, std::string_view text);
// repr(float) of Python for a finite value.
std::string python_float(double value);

}  // namespace gannet::text
