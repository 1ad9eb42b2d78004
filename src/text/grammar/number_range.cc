#include "text/grammar/number_range.h"

#include <xgrammar/grammar.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "text/json_value.h"

namespace gannet::text::grammar {
namespace {

constexpr int64_t kLargestInteger = 999'999'999'999'999'999;  // 18 digits: all of them fit 64 bits
constexpr int64_t kMostListed = 1024;                         // multiples that are written one by one
constexpr int64_t kLargestDivisor = 100;                      // for multiples without bounds
constexpr double kFarthest = 1e15;                            // stands for a bound that is missing

struct Bounds {
  std::optional<double> least, most;
  bool least_is_out = false;  // the bound itself does not belong
  bool most_is_out = false;
};

Result<std::optional<double>> bound(const Json& schema, std::string_view keyword, const std::string& path) {
  const Json* value = schema.find(keyword);
  if (value == nullptr) return std::nullopt;
  const auto number = number_of(*value);
  if (!number) return invalid_input("{}.{}: expected a number", path, keyword);
  return number;
}

Result<Bounds> read_bounds(const Json& schema, const std::string& path) {
  Bounds bounds;
  GANNET_TRY(bounds.least, bound(schema, "minimum", path));
  GANNET_TRY(bounds.most, bound(schema, "maximum", path));
  GANNET_TRY(const auto above, bound(schema, "exclusiveMinimum", path));
  GANNET_TRY(const auto below, bound(schema, "exclusiveMaximum", path));
  if (above && (!bounds.least || *above >= *bounds.least)) {
    bounds.least = above;
    bounds.least_is_out = true;
  }
  if (below && (!bounds.most || *below <= *bounds.most)) {
    bounds.most = below;
    bounds.most_is_out = true;
  }
  return bounds;
}

// xgrammar's rules for numbers under a schema of its own making.
Result<std::string> rules_for(const Json& schema, const std::string& path) {
  try {
    return xgrammar::Grammar::FromJSONSchema(compact_json(schema)).ToString();
  } catch (const std::exception&) {
    return invalid_input("{}: no number is inside its bounds", path);
  }
}

int64_t to_integer(double value) {
  return static_cast<int64_t>(
      std::clamp(value, static_cast<double>(-kLargestInteger), static_cast<double>(kLargestInteger)));
}

Result<NumberRange> integers(const Bounds& bounds, int64_t divisor, const std::string& path) {
  NumberRange range{.whole = true, .values = {}, .ebnf = {}};
  if (!bounds.least && !bounds.most) {
    if (divisor == 1) return range;
    if (divisor > kLargestDivisor) {
      return invalid_input("{}: multipleOf {} without minimum and maximum is above {}, which cannot be enforced", path,
                           divisor, kLargestDivisor);
    }
    GANNET_TRY(range.ebnf, rules_for(Json::Object{{"type", "integer"}, {"multipleOf", divisor}}, path));
    return range;
  }
  int64_t least = bounds.least ? to_integer(std::ceil(*bounds.least)) : -kLargestInteger;
  int64_t most = bounds.most ? to_integer(std::floor(*bounds.most)) : kLargestInteger;
  if (bounds.least_is_out && static_cast<double>(least) == *bounds.least) ++least;
  if (bounds.most_is_out && static_cast<double>(most) == *bounds.most) --most;
  if (least > most) return invalid_input("{}: no integer is inside its bounds", path);
  if (divisor == 1) {
    GANNET_TRY(range.ebnf, rules_for(Json::Object{{"type", "integer"}, {"minimum", least}, {"maximum", most}}, path));
    return range;
  }
  if ((most / divisor - least / divisor) > kMostListed) {
    return invalid_input("{}: multipleOf {} leaves more than {} numbers, which cannot be enforced", path, divisor,
                         kMostListed);
  }
  for (int64_t i = least / divisor - 1; i * divisor <= most; ++i) {
    if (i * divisor >= least) range.values.push_back(i * divisor);
  }
  if (range.values.empty()) return invalid_input("{}: no multiple is inside its bounds", path);
  return range;
}

Result<NumberRange> reals(const Bounds& bounds, const std::string& path) {
  NumberRange range;
  if (!bounds.least && !bounds.most) return range;
  const double least = bounds.least.value_or(-std::max(kFarthest, bounds.most.value_or(0) * -2));
  const double most = bounds.most.value_or(std::max(kFarthest, least * 2));
  Json::Object schema = {{"type", "number"}};
  schema.emplace_back(bounds.least_is_out ? "exclusiveMinimum" : "minimum", least);
  schema.emplace_back(bounds.most_is_out ? "exclusiveMaximum" : "maximum", most);
  GANNET_TRY(range.ebnf, rules_for(std::move(schema), path));
  return range;
}

}  // namespace

Result<NumberRange> read_number_range(const Json& schema, bool whole, const std::string& path) {
  GANNET_TRY(const Bounds bounds, read_bounds(schema, path));
  GANNET_TRY(const auto divisor, bound(schema, "multipleOf", path));
  if (!divisor) return whole ? integers(bounds, 1, path) : reals(bounds, path);
  if (!(*divisor >= 1 && *divisor <= kFarthest) || std::floor(*divisor) != *divisor) {
    return invalid_input("{}: multipleOf can be enforced only for whole numbers from 1 to {}", path, kFarthest);
  }
  // The multiples of an integer are integers.
  return integers(bounds, static_cast<int64_t>(*divisor), path);
}

}  // namespace gannet::text::grammar
