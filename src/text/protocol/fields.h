#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/json.h"

namespace gannet::text {

// Reads the members of one JSON object. A member that is null counts as absent. Every error names the field by its
// path, e.g. "messages[1].content", and says what was found.
class Fields {
 public:
  // The object must outlive the result. `path` is empty for the body itself.
  static Result<Fields> of(const Json& value, std::string path);

  const Json::Object& members() const { return *members_; }
  const Json* get(std::string_view key) const;
  // The same, but null is a value like others.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return get(key) != nullptr; }
  std::string path(std::string_view key) const;
  std::string path(std::string_view key, size_t index) const;

  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::string> required_text(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  // Numbers in [low, high]; an integer may be written as 5 but not as 5.0.
  Result<std::optional<double>> number(std::string_view key, double low, double high) const;
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t low, int64_t high) const;
  // nullptr if absent.
  Result<const Json::Array*> list(std::string_view key) const;
  Result<std::optional<Fields>> object(std::string_view key) const;

 private:
  Fields(const Json::Object& members, std::string path) : members_(&members), path_(std::move(path)) {}

  const Json::Object* members_;
  std::string path_;
};

// "path: expected `wanted`, got ...".
tl::unexpected<Error> wrong_type(std::string_view path, std::string_view wanted, const Json& found);
// A value for an error message: quoted and cut to a sensible length.
std::string shown(std::string_view value);

// The number that is `value`, in [low, high].
Result<double> number_of(const Json& value, std::string_view path, double low, double high);

// The body of a request: a JSON object.
Result<Json> parse_body(std::string_view body);

}  // namespace gannet::text
