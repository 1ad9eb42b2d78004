#include "text/json_value.h"

#include <algorithm>

namespace gannet::text {
namespace {

bool is_real(const Json& value) {
  return std::holds_alternative<double>(value.value());
}

// Keys are unique.
bool same_members(const Json& left, const Json& right) {
  const auto& members = *left.object();
  if (members.size() != right.object()->size()) return false;
  return std::all_of(members.begin(), members.end(), [&right](const auto& member) {
    const Json* other = right.find(member.first);
    return other != nullptr && same_value(member.second, *other);
  });
}

}  // namespace

std::optional<double> number_of(const Json& value) {
  if (const auto* number = std::get_if<int64_t>(&value.value())) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value.value())) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value.value())) return *number;
  return {};
}

bool same_value(const Json& left, const Json& right) {
  if (left.object() != nullptr && right.object() != nullptr) return same_members(left, right);
  if (left.array() != nullptr && right.array() != nullptr) {
    return std::equal(left.array()->begin(), left.array()->end(), right.array()->begin(), right.array()->end(),
                      same_value);
  }
  if (is_real(left) || is_real(right)) {
    const auto one = number_of(left);
    const auto other = number_of(right);
    return one && other && *one == *other;
  }
  if (left.string() != nullptr && right.string() != nullptr) return *left.string() == *right.string();
  return left.value().index() == right.value().index() && compact_json(left) == compact_json(right);
}

}  // namespace gannet::text
