#include "text/grammar/schema_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "text/grammar/number_range.h"
#include "text/grammar/pattern.h"
#include "text/grammar/string_formats.h"
#include "text/utf8.h"

namespace gannet::text::grammar {
namespace {

// One character of a JSON string. Escapes spell no halves of surrogate pairs.
constexpr std::string_view kJsonCharacter =
    R"(([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u([0-9a-cA-Ce-fE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))))";
constexpr std::string_view kAnyCharacter = R"([\s\S])";
// Numbers that every reader can hold: integers in 64 bits, others in a double.
constexpr std::string_view kIntegerPattern = "0|-?[1-9][0-9]{0,17}";
constexpr std::string_view kNumberPattern = R"(-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+\-]?[0-9]{1,2})?)";

constexpr size_t kMostSchemaNodes = 20000;
constexpr size_t kMostBytes = 512 * 1024;   // of the grammar
constexpr int64_t kMostCountedStates = 32;  // of strings whose characters are counted; each costs milliseconds
constexpr int64_t kLongestCounted = 24;     // longer limits are kept by a counter beside the automaton
constexpr int64_t kMostItems = 100000;      // that an array must have
constexpr size_t kMostExcludedNames = 128;

std::string in_quotes(std::string_view pattern) {
  return fmt::format("\"{}\"", pattern);
}

std::string times(int64_t least, int64_t most) {
  return most < 0 ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most);
}

size_t count_nodes(const Json& value) {
  size_t count = 1;
  if (const auto* list = value.array()) {
    for (const Json& one : *list) count += count_nodes(one);
  } else if (const auto* members = value.object()) {
    for (const auto& [name, one] : *members) count += 1 + count_nodes(one);
  }
  return count;
}

// Texts of `plain` characters, and then any of `rest`, that are none of the names: a tree of the names' characters,
// left at the first other character.
std::string other_than(std::span<const std::u32string> names, size_t depth, std::string_view forbidden,
                       std::string_view rest) {
  std::map<char32_t, std::vector<std::u32string>> next;
  bool is_name = false;
  for (const auto& name : names) {
    if (name.size() == depth) {
      is_name = true;
    } else {
      next[name[depth]].push_back(name);
    }
  }
  std::string followers;
  std::string pattern;
  for (const auto& [character, longer] : next) {
    followers += class_character(character);
    pattern += fmt::format("[{}]{}|", class_character(character), other_than(longer, depth + 1, forbidden, rest));
  }
  pattern += fmt::format("[^{}{}]{}*", followers, forbidden, rest);
  return fmt::format("({}){}", pattern, is_name ? "" : "?");
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) out += next_code_point(text, at);
  return out;
}

}  // namespace

JsonRules::JsonRules(Rules& rules)
    : space_(rules.add_regex(R"([ \n\r\t]{0,20})")),
      value_(rules.declare()),
      object_(rules.declare()),
      array_(rules.declare()),
      string_(rules.add_regex(in_quotes(fmt::format("{}*", kJsonCharacter)))),
      number_(rules.add_regex(kNumberPattern)),
      integer_(rules.add_regex(kIntegerPattern)),
      boolean_(rules.add({literal("true"), literal("false")})) {
  rules.define(value_, {object(), array(), string(), number(), boolean(), literal("null")});
  const Part comma = sequence({space(), literal(","), space()});
  const Part member = rule(rules.add({sequence({string(), space(), literal(":"), space(), value()})}));
  rules.define(
      object_,
      {sequence({literal("{"), space(), literal("}")}),
       sequence({literal("{"), space(), member, repeat(sequence({comma, member}), 0, -1), space(), literal("}")})});
  rules.define(
      array_,
      {sequence({literal("["), space(), literal("]")}),
       sequence({literal("["), space(), value(), repeat(sequence({comma, value()}), 0, -1), space(), literal("]")})});
}

SchemaRules::SchemaRules(Rules& rules, const JsonRules& json, const Json& root, std::string name)
    : rules_(rules), json_(json), root_(root), name_(std::move(name)) {}

Status SchemaRules::check_size() const {
  if (const size_t nodes = count_nodes(root_); nodes > kMostSchemaNodes) {
    return invalid_input("{}: the schema has {} values; at most {} are supported", name_, nodes, kMostSchemaNodes);
  }
  return {};
}

Result<Part> SchemaRules::value() {
  GANNET_TRY_STATUS(check_size());
  return value_of(root_, name_);
}

Result<Part> SchemaRules::value_of(const Json& schema, const std::string& path) {
  if (const auto known = values_.find(&schema); known != values_.end()) return rule(known->second);
  if (rules_.bytes() > kMostBytes) {
    return invalid_input("{}: the schema makes a grammar of more than {} bytes", name_, kMostBytes);
  }
  const RuleId id = rules_.declare();
  values_[&schema] = id;
  GANNET_TRY(auto alternatives, value_alternatives(schema, path));
  rules_.define(id, std::move(alternatives));
  return rule(id);
}

Result<std::vector<Part>> SchemaRules::value_alternatives(const Json& schema, const std::string& path) {
  GANNET_TRY(const SchemaView view, view_schema(schema, path));
  std::vector<Part> parts;
  switch (view.form) {
    case SchemaForm::nothing:
      break;
    case SchemaForm::anything:
      parts.push_back(json_.value());
      break;
    case SchemaForm::reference: {
      GANNET_TRY(const Json* target, resolve_reference(root_, schema, path));
      GANNET_TRY(auto part, value_of(*target, fmt::format("{}.$ref", path)));
      parts.push_back(std::move(part));
      break;
    }
    case SchemaForm::literals:
      for (const Json* value : view.values) parts.push_back(literal(python_json(*value)));
      break;
    case SchemaForm::alternatives:
      GANNET_TRY_STATUS(check_exclusive(view, path));
      for (const Json& one : *view.alternatives) {
        GANNET_TRY(auto part, value_of(one, fmt::format("{}.{}", path, parts.size())));
        parts.push_back(std::move(part));
      }
      break;
    case SchemaForm::typed:
      for (Types type = kNull; type <= kObject; type *= 2) {
        if ((view.types & type) == 0) continue;
        GANNET_TRY(auto part, typed_value(schema, type, path));
        parts.push_back(std::move(part));
      }
      break;
  }
  return parts;
}

Status SchemaRules::check_exclusive(const SchemaView& view, const std::string& path) const {
  if (!view.exclusive || are_disjoint(root_, *view.alternatives)) return {};
  return invalid_input("{}: the keyword oneOf cannot be enforced when a value may match two of its schemas; use anyOf",
                       path);
}

Result<Part> SchemaRules::typed_value(const Json& schema, Types type, const std::string& path) {
  switch (type) {
    case kNull:
      return literal("null");
    case kBoolean:
      return json_.boolean();
    case kInteger:
    case kNumber:
      return number_value(schema, type == kInteger, path);
    case kString:
      return string_value(schema, path, true);
    case kArray:
      return array_value(schema, path);
    default:
      return object_value(schema, path);
  }
}

// Characters, each `one`, counted by the automaton or, beyond that, by xgrammar.
Result<Part> SchemaRules::counted_text(const Json& schema, const std::string& path, bool as_json) {
  GANNET_TRY(const int64_t least, count_keyword(schema, "minLength", 0, path));
  GANNET_TRY(const int64_t most, count_keyword(schema, "maxLength", -1, path));
  const std::string_view one = as_json ? kJsonCharacter : kAnyCharacter;
  if (most >= 0 && most < least) return invalid_input("{}: maxLength {} is below minLength {}", path, most, least);
  const bool counts = most >= 0 && most <= kLongestCounted && counted_states_ + most <= kMostCountedStates;
  counted_states_ += counts ? most : least;
  if (counted_states_ > kMostCountedStates || least > kLongestCounted) {
    return invalid_input("{}: minLength {} is too much to enforce; at most {} each and {} together are", path, least,
                         kLongestCounted, kMostCountedStates);
  }
  const std::string body = std::string(one) + times(least, counts ? most : -1);
  if (most < 0 || counts) return rule(rules_.add_regex(as_json ? in_quotes(body) : body));
  const Part limited = rule(rules_.add_limited_regex(body, std::min<int64_t>(most, INT32_MAX)));
  return as_json ? sequence({literal("\""), limited, literal("\"")}) : limited;
}

Result<Part> SchemaRules::string_value(const Json& schema, const std::string& path, bool as_json) {
  std::string keyword;
  std::string pattern;
  if (const Json* value = schema.find("pattern")) {
    if (!value->is_string()) return invalid_input("{}.pattern: expected a string", path);
    auto whole = whole_pattern(*value->string(), PatternScope::inside);
    if (!whole) return invalid_input("{}.pattern: {}", path, whole.error().message);
    pattern = *std::move(whole);
    keyword = "pattern";
  }
  if (const Json* value = schema.find("format"); value != nullptr && value->is_string()) {
    auto format = string_format(*value->string());
    if (format.refused) return invalid_input("{}.format: {} cannot be enforced", path, *value->string());
    if (format.pattern && !keyword.empty()) return invalid_input("{}: format beside pattern cannot be enforced", path);
    if (format.pattern) {
      pattern = *std::move(format.pattern);
      keyword = "format";
    }
  }
  if (keyword.empty()) return counted_text(schema, path, as_json);
  for (const std::string_view length : {"minLength", "maxLength"}) {
    if (schema.find(length) != nullptr) {
      return invalid_input("{}: {} beside {} cannot be enforced", path, length, keyword);
    }
  }
  if (!as_json) return rule(rules_.add_regex(pattern));
  return sequence({literal("\""), rule(rules_.add_unescaped_regex(pattern)), literal("\"")});
}

Result<Part> SchemaRules::number_value(const Json& schema, bool whole, const std::string& path) {
  GANNET_TRY(const NumberRange range, read_number_range(schema, whole, path));
  if (!range.values.empty()) {
    std::vector<Part> parts;
    for (const int64_t value : range.values) parts.push_back(literal(fmt::format("{}", value)));
    return rule(rules_.add(std::move(parts)));
  }
  if (!range.ebnf.empty()) return rule(rules_.import(range.ebnf));
  return range.whole ? json_.integer() : json_.number();
}

Result<Part> SchemaRules::array_value(const Json& schema, const std::string& path) {
  static const Json::Array kNone;
  GANNET_TRY(const int64_t least, count_keyword(schema, "minItems", 0, path));
  GANNET_TRY(const int64_t most, count_keyword(schema, "maxItems", -1, path));
  if (most >= 0 && most < least) return invalid_input("{}: maxItems {} is below minItems {}", path, most, least);
  if (least > kMostItems) return invalid_input("{}: minItems {} is above {}", path, least, kMostItems);
  const Json* items = schema.find("items");
  const Json* first = schema.find("prefixItems");
  if (first == nullptr && items != nullptr && items->is_array()) std::swap(first, items);  // before draft 2020-12
  if (first != nullptr && !first->is_array()) return invalid_input("{}.prefixItems: expected a list of schemas", path);
  const Json::Array& fixed = first != nullptr ? *first->array() : kNone;

  std::vector<Part> parts = {literal("["), json_.space()};
  const auto stands = most < 0 ? fixed.size() : std::min(fixed.size(), static_cast<size_t>(most));
  for (size_t i = 0; i < stands; ++i) {
    if (i > 0) parts.push_back(comma());
    GANNET_TRY(auto part, value_of(fixed[i], fmt::format("{}.prefixItems.{}", path, i)));
    parts.push_back(std::move(part));
  }
  const int64_t more_least = std::max<int64_t>(least - static_cast<int64_t>(stands), 0);
  const int64_t more_most = most < 0 ? -1 : std::min<int64_t>(most - static_cast<int64_t>(stands), INT32_MAX);
  // Behind the fixed ones only if the schema says so, as with the members of an object.
  const bool has_more = more_most != 0 && (items != nullptr || first == nullptr);
  if (!has_more && more_least > 0) return invalid_input("{}: minItems {} is above what it may hold", path, least);
  const Part end = sequence({json_.space(), literal("]")});
  const Part without = sequence({sequence(parts), end});
  if (!has_more) return rule(rules_.add({without}));
  GANNET_TRY(const Part item, items != nullptr ? value_of(*items, path + ".items") : Result<Part>(json_.value()));
  return rule(rules_.add(array_alternatives(parts, stands, item, more_least, more_most)));
}

// `start` holds the opening bracket and `fixed` items; more items follow.
std::vector<Part> SchemaRules::array_alternatives(std::vector<Part> start, size_t fixed, const Part& item,
                                                  int64_t least, int64_t most) const {
  const Part end = sequence({json_.space(), literal("]")});
  std::vector<Part> alternatives;
  if (least == 0) {
    alternatives.push_back(fixed == 0 ? sequence({sequence(start), literal("]")}) : sequence({sequence(start), end}));
  }
  if (fixed > 0) start.push_back(comma());
  start.push_back(item);
  const int64_t others_least = std::max<int64_t>(least - 1, 0);
  if (most != 1) start.push_back(repeat(sequence({comma(), item}), others_least, most < 0 ? -1 : most - 1));
  start.push_back(end);
  alternatives.push_back(sequence(start));
  return alternatives;
}

Part SchemaRules::comma() const {
  return sequence({json_.space(), literal(","), json_.space()});
}

Part SchemaRules::member(const Part& name, const Part& value) const {
  return sequence({name, json_.space(), literal(":"), json_.space(), value});
}

Result<Part> SchemaRules::object_value(const Json& schema, const std::string& path) {
  GANNET_TRY(const Members members, members_of(schema, path));
  std::vector<MemberPart> named;
  for (const Member& one : members.named) {
    GANNET_TRY(const Part value, value_of(*one.schema, fmt::format("{}.properties.{}", path, one.name)));
    named.push_back({member(literal(json_quote(one.name)), value), one.required});
  }
  std::optional<Part> other;
  if (members.others != nullptr) {
    GANNET_TRY(const Part name, other_name(members, path));
    GANNET_TRY(const Part value, value_of(*members.others, path + ".additionalProperties"));
    other = member(name, value);
  }
  const Part start = sequence({literal("{"), json_.space()});
  const MemberList list = member_list(rules_, named, other, comma());
  std::vector<Part> alternatives;
  if (list.may_be_empty) alternatives.push_back(sequence({start, literal("}")}));
  alternatives.push_back(sequence({start, list.some, json_.space(), literal("}")}));
  return rule(rules_.add(std::move(alternatives)));
}

MemberList member_list(Rules& rules, const std::vector<MemberPart>& named, const std::optional<Part>& other,
                       const Part& separator) {
  // From the back: what may follow member i if nothing stands before it, and if something does.
  std::vector<Part> first;
  std::vector<Part> rest = {literal("")};
  if (other) {
    const Part more = repeat(sequence({separator, *other}), 0, -1);
    first.push_back(sequence({*other, more}));
    rest = {more, literal("")};
  }
  bool may_be_empty = true;
  for (size_t i = named.size(); i-- > 0;) {
    const Part after = rule(rules.add(std::move(rest)));
    const Part before = rule(rules.add(std::move(first)));
    first = {sequence({named[i].part, after})};
    rest = {sequence({separator, named[i].part, after})};
    if (named[i].required) {
      may_be_empty = false;
    } else {
      first.push_back(before);
      rest.push_back(after);
    }
  }
  return {rule(rules.add(std::move(first))), may_be_empty};
}

Result<SchemaRules::Members> SchemaRules::members_of(const Json& schema, const std::string& path) {
  static const Json kAnything(true);
  Members members;
  std::unordered_set<std::string_view> required;
  if (const Json* names = schema.find("required")) {
    if (!names->is_array()) return invalid_input("{}.required: expected a list of strings", path);
    for (const Json& name : *names->array()) {
      if (!name.is_string()) return invalid_input("{}.required: expected a list of strings", path);
      required.insert(*name.string());
    }
  }
  const Json* properties = schema.find("properties");
  if (properties != nullptr) {
    if (!properties->is_object()) return invalid_input("{}.properties: expected an object of schemas", path);
    for (const auto& [name, one] : *properties->object()) {
      members.named.push_back({name, &one, required.erase(name) > 0});
    }
  }
  members.others = properties == nullptr && schema.find("patternProperties") == nullptr ? &kAnything : nullptr;
  for (const std::string_view keyword : {"unevaluatedProperties", "additionalProperties"}) {
    const Json* others = schema.find(keyword);
    if (others == nullptr) continue;
    const bool none = others->boolean() != nullptr && !*others->boolean();
    members.others = none ? nullptr : others;
  }
  for (const std::string_view name : required) {
    if (members.others == nullptr) {
      return invalid_input("{}.required: {} is not among its properties", path, json_quote(name.substr(0, 80)));
    }
    members.named.push_back({std::string(name), members.others, true});
  }
  GANNET_TRY_STATUS(restrict_names(schema, members, path));
  GANNET_TRY_STATUS(check_member_counts(schema, members, path));
  return members;
}

// patternProperties and propertyNames: for objects that name no properties of their own.
Status SchemaRules::restrict_names(const Json& schema, Members& members, const std::string& path) {
  if (const Json* patterns = schema.find("patternProperties")) {
    if (!patterns->is_object()) return invalid_input("{}.patternProperties: expected an object of schemas", path);
    if (!members.named.empty() || members.others != nullptr || patterns->object()->size() != 1 ||
        schema.find("propertyNames") != nullptr) {
      return invalid_input("{}: patternProperties can be enforced only alone and with a single pattern", path);
    }
    const auto& [pattern, value] = patterns->object()->front();
    members.others = &value;
    made_.push_back(Json(Json::Object{{"type", "string"}, {"pattern", pattern}}));
    members.other_names = &made_.back();
  }
  const Json* names = schema.find("propertyNames");
  if (names == nullptr) return {};
  GANNET_TRY(const SchemaView view, view_schema(*names, path + ".propertyNames"));
  const bool any_string = view.form == SchemaForm::anything ||
                          (view.form == SchemaForm::typed && view.types == kString && names->object()->size() == 1);
  if (any_string) return {};
  const bool strings =
      (view.form == SchemaForm::typed && view.types == kString) ||
      (view.form == SchemaForm::literals &&
       std::all_of(view.values.begin(), view.values.end(), [](const Json* one) { return one->is_string(); }));
  if (!members.named.empty() || !strings) {
    return invalid_input("{}: propertyNames can be enforced only for strings and beside no properties", path);
  }
  members.other_names = names;
  return {};
}

// Names may repeat among members that the schema does not name, so these cannot be counted.
Status SchemaRules::check_member_counts(const Json& schema, const Members& members, const std::string& path) const {
  GANNET_TRY(const int64_t least, count_keyword(schema, "minProperties", 0, path));
  GANNET_TRY(const int64_t most, count_keyword(schema, "maxProperties", INT64_MAX, path));
  const auto all = static_cast<int64_t>(members.named.size());
  const auto required = static_cast<int64_t>(
      std::count_if(members.named.begin(), members.named.end(), [](const Member& one) { return one.required; }));
  if (least > required && !(least == 1 && members.named.empty() && members.others != nullptr)) {
    return invalid_input("{}: the keyword minProperties cannot be enforced", path);
  }
  if (most < all || (most != INT64_MAX && members.others != nullptr)) {
    return invalid_input("{}: the keyword maxProperties cannot be enforced", path);
  }
  return {};
}

// A member's name in JSON that is none of those which the schema has.
Result<Part> SchemaRules::other_name(const Members& members, const std::string& path) {
  if (members.other_names != nullptr) return value_of(*members.other_names, path + ".propertyNames");
  if (members.named.empty()) return json_.string();
  GANNET_TRY(const std::string pattern, other_name_pattern(members, true, path));
  return rule(rules_.add_regex(in_quotes(pattern)));
}

Result<std::string> SchemaRules::other_name_pattern(const Members& members, bool as_json,
                                                    const std::string& path) const {
  if (members.named.size() > kMostExcludedNames) {
    return invalid_input("{}: additionalProperties beside {} properties cannot be enforced; at most {} can", path,
                         members.named.size(), kMostExcludedNames);
  }
  std::vector<std::u32string> names;
  for (const Member& one : members.named) names.push_back(code_points(one.name));
  if (as_json) return other_than(names, 0, R"("\\\x00-\x1f)", kJsonCharacter);
  names.emplace_back();  // in markup a name is not empty
  return other_than(names, 0, R"("\\<>\x00-\x1f)", R"([^"\\<>\x00-\x1f])");
}

}  // namespace gannet::text::grammar
