#include "text/protocol/fields.h"

#include <cmath>

#include "text/json_value.h"
#include "text/utf8.h"

namespace gannet::text {

tl::unexpected<Error> wrong_type(std::string_view path, std::string_view wanted, const Json& found) {
  return invalid_input("{}: expected {}, got {}", path, wanted, json_kind(found));
}

std::string shown(std::string_view value) {
  constexpr size_t kLongest = 60;
  if (value.size() <= kLongest) return json_quote(value);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;
  return json_quote(std::string(value.substr(0, end)) + "…");
}

Result<double> number_of(const Json& value, std::string_view path, double low, double high) {
  const auto number = number_of(value);
  if (!number) return wrong_type(path, "a number", value);
  if (!(*number >= low && *number <= high)) {
    return invalid_input("{}: {} is out of range; expected {} to {}", path, python_json(value), low, high);
  }
  return *number;
}

Result<Json> parse_body(std::string_view body) {
  auto parsed = parse_json(body);
  if (!parsed) return invalid_input("the request body is not JSON: {}", parsed.error().message);
  if (!parsed->is_object()) return invalid_input("the request body must be a JSON object, got {}", json_kind(*parsed));
  return parsed;
}

Result<Fields> Fields::of(const Json& value, std::string path) {
  if (const auto* members = value.object()) return Fields(*members, std::move(path));
  return wrong_type(path, "an object", value);
}

const Json* Fields::find(std::string_view key) const {
  for (const auto& [name, value] : *members_) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json* Fields::get(std::string_view key) const {
  const Json* value = find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Fields::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string Fields::path(std::string_view key, size_t index) const {
  return fmt::format("{}[{}]", path(key), index);
}

Result<std::optional<std::string>> Fields::text(std::string_view key) const {
  const Json* value = get(key);
  if (value == nullptr) return std::optional<std::string>{};
  if (const auto* text = value->string()) return std::optional(*text);
  return wrong_type(path(key), "a string", *value);
}

Result<std::string> Fields::required_text(std::string_view key) const {
  GANNET_TRY(auto value, text(key));
  if (!value) return invalid_input("{}: missing; expected a string", path(key));
  return *std::move(value);
}

Result<std::optional<bool>> Fields::flag(std::string_view key) const {
  const Json* value = get(key);
  if (value == nullptr) return std::optional<bool>{};
  if (const auto* flag = value->boolean()) return std::optional(*flag);
  return wrong_type(path(key), "true or false", *value);
}

Result<bool> Fields::flag_or(std::string_view key, bool fallback) const {
  GANNET_TRY(const auto value, flag(key));
  return value.value_or(fallback);
}

Result<std::optional<double>> Fields::number(std::string_view key, double low, double high) const {
  const Json* value = get(key);
  if (value == nullptr) return std::optional<double>{};
  GANNET_TRY(const double number, number_of(*value, path(key), low, high));
  return std::optional(number);
}

Result<std::optional<int64_t>> Fields::integer(std::string_view key, int64_t low, int64_t high) const {
  const Json* value = get(key);
  if (value == nullptr) return std::optional<int64_t>{};
  if (!value->is_number()) return wrong_type(path(key), "an integer", *value);
  const auto* whole = std::get_if<int64_t>(&value->value());
  const auto* natural = std::get_if<uint64_t>(&value->value());
  const bool fits = whole != nullptr || (natural != nullptr && *natural <= static_cast<uint64_t>(INT64_MAX));
  const int64_t number = whole != nullptr ? *whole : natural != nullptr ? static_cast<int64_t>(*natural) : 0;
  if (!fits || number < low || number > high) {
    return invalid_input("{}: {} is not an integer from {} to {}", path(key), python_json(*value), low, high);
  }
  return std::optional(number);
}

Result<const Json::Array*> Fields::list(std::string_view key) const {
  const Json* value = get(key);
  if (value == nullptr) return nullptr;
  if (const auto* elements = value->array()) return elements;
  return wrong_type(path(key), "a list", *value);
}

Result<std::optional<Fields>> Fields::object(std::string_view key) const {
  const Json* value = get(key);
  if (value == nullptr) return std::optional<Fields>{};
  GANNET_TRY(auto fields, of(*value, path(key)));
  return std::optional(std::move(fields));
}

}  // namespace gannet::text
