#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "text/json_value.h"

namespace gannet::text::grammar {
namespace {

struct Keyword {
  std::string_view name;
  Types types;  // it says something about values of these; 0: about all
};

// Those that forbid something and that a grammar can keep.
constexpr std::array<Keyword, 16> kEnforced = {{{"minLength", kString},
                                                {"maxLength", kString},
                                                {"pattern", kString},
                                                {"format", kString},
                                                {"minimum", kInteger | kNumber},
                                                {"maximum", kInteger | kNumber},
                                                {"exclusiveMinimum", kInteger | kNumber},
                                                {"exclusiveMaximum", kInteger | kNumber},
                                                {"multipleOf", kInteger | kNumber},
                                                {"items", kArray},
                                                {"prefixItems", kArray},
                                                {"minItems", kArray},
                                                {"maxItems", kArray},
                                                {"properties", kObject},
                                                {"required", kObject},
                                                {"additionalProperties", kObject}}};
// Those that only some values allow to keep; build_schema.cc decides.
constexpr std::array<Keyword, 5> kConditional = {{{"patternProperties", kObject},
                                                  {"propertyNames", kObject},
                                                  {"minProperties", kObject},
                                                  {"maxProperties", kObject},
                                                  {"unevaluatedProperties", kObject}}};
// Those that a grammar cannot keep.
constexpr std::array<Keyword, 16> kRefused = {{{"not", 0},
                                               {"if", 0},
                                               {"$dynamicRef", 0},
                                               {"$recursiveRef", 0},
                                               {"dependentSchemas", kObject},
                                               {"dependentRequired", kObject},
                                               {"dependencies", kObject},
                                               {"uniqueItems", kArray},
                                               {"contains", kArray},
                                               {"minContains", kArray},
                                               {"maxContains", kArray},
                                               {"additionalItems", kArray},
                                               {"unevaluatedItems", kArray},
                                               {"contentSchema", kString},
                                               {"divisibleBy", kInteger | kNumber},
                                               {"disallow", 0}}};
constexpr std::array<std::pair<std::string_view, Types>, 7> kTypeNames = {{{"null", kNull},
                                                                           {"boolean", kBoolean},
                                                                           {"integer", kInteger},
                                                                           {"number", kNumber},
                                                                           {"string", kString},
                                                                           {"array", kArray},
                                                                           {"object", kObject}}};

bool is_false(const Json& value) {
  return value.boolean() != nullptr && !*value.boolean();
}

Types type_named(const Json& name) {
  if (!name.is_string()) return 0;
  for (const auto& [text, type] : kTypeNames) {
    if (*name.string() == text) return type;
  }
  return 0;
}

Result<Types> read_types(const Json& type, const std::string& path) {
  Types types = type_named(type);
  if (const auto* names = type.array()) {
    for (const Json& name : *names) {
      if (type_named(name) == 0) {
        return invalid_input("{}.type: {} is no type of JSON", path, python_json(name).substr(0, 40));
      }
      types |= type_named(name);
    }
  }
  if (types == 0) return invalid_input("{}.type: expected a type of JSON or a list of them", path);
  return types;
}

Types type_of(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.boolean() != nullptr) return kBoolean;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  const double number = *number_of(value);
  return std::floor(number) == number ? kInteger | kNumber : kNumber;
}

bool overlap(Types a, Types b) {
  if ((a & kNumber) != 0) a |= kInteger;
  if ((b & kNumber) != 0) b |= kInteger;
  return (a & b) != 0;
}

// The types of values that the keywords beside no "type" are about.
Types implied_types(const Json& schema) {
  Types types = 0;
  for (const auto& [name, about] : kEnforced) {
    if (schema.find(name) != nullptr) types |= about;
  }
  for (const auto& [name, about] : kConditional) {
    if (schema.find(name) != nullptr) types |= about;
  }
  if ((types & kNumber) != 0) types &= ~kInteger;
  return types;
}

Status check_refused(const Json& schema, Types types, const std::string& path) {
  for (const auto& [name, about] : kRefused) {
    const Json* value = schema.find(name);
    if (value == nullptr || (about != 0 && types != 0 && !overlap(about, types))) continue;
    if (name == "uniqueItems" && is_false(*value)) continue;
    return invalid_input("{}: the keyword {} cannot be enforced", path, name);
  }
  return {};
}

// Beside `form` nothing else may forbid values.
Status check_alone(const Json& schema, std::string_view form, const std::string& path) {
  constexpr std::array<std::string_view, 7> kForms = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf", "type"};
  const auto beside = [&](std::string_view name) {
    return invalid_input("{}: {} beside {} cannot be enforced", path, name, form);
  };
  const bool has_values = form == "const" || form == "enum";
  for (const std::string_view name : kForms) {
    if (name == form || schema.find(name) == nullptr) continue;
    if (has_values && (name == "type" || name == "enum")) continue;
    return beside(name);
  }
  for (const auto& [name, about] : kEnforced) {
    if (schema.find(name) != nullptr) return beside(name);
  }
  for (const auto& [name, about] : kConditional) {
    if (schema.find(name) != nullptr) return beside(name);
  }
  return {};
}

// Whether the values may be equal; lists and objects are not compared.
bool may_equal(const Json& a, const Json& b) {
  const auto x = number_of(a);
  const auto y = number_of(b);
  if (x && y) return *x == *y;
  if ((a.is_array() && b.is_array()) || (a.is_object() && b.is_object())) return true;
  return python_json(a) == python_json(b);
}

SchemaView view_of(SchemaForm form) {
  SchemaView view;
  view.form = form;
  return view;
}

Result<SchemaView> view_literals(const Json& schema, const std::string& path) {
  SchemaView view = view_of(SchemaForm::literals);
  const Json* value = schema.find("const");
  const Json* list = schema.find("enum");
  if (list != nullptr && (!list->is_array() || list->array()->empty())) {
    return invalid_input("{}.enum: expected a list of at least one value", path);
  }
  GANNET_TRY_STATUS(check_alone(schema, value != nullptr ? "const" : "enum", path));
  Types types = kAnyType;
  if (const Json* type = schema.find("type")) {
    GANNET_TRY(types, read_types(*type, path));
  }
  const auto add = [&](const Json& one) {
    if ((type_of(one) & types) != 0) view.values.push_back(&one);
  };
  if (value == nullptr) {
    for (const Json& one : *list->array()) add(one);
  } else if (list == nullptr || std::any_of(list->array()->begin(), list->array()->end(),
                                            [&](const Json& one) { return may_equal(one, *value); })) {
    add(*value);
  }
  if (view.values.empty()) return invalid_input("{}: no value of its enum or const has its type", path);
  return view;
}

Result<SchemaView> view_alternatives(const Json& schema, std::string_view keyword, const std::string& path) {
  GANNET_TRY_STATUS(check_alone(schema, keyword, path));
  SchemaView view = view_of(SchemaForm::alternatives);
  view.alternatives = schema.find(keyword)->array();
  if (view.alternatives == nullptr || view.alternatives->empty()) {
    return invalid_input("{}.{}: expected a list of at least one schema", path, keyword);
  }
  if (keyword == "allOf" && view.alternatives->size() > 1) {
    return invalid_input("{}: the keyword allOf with more than one schema cannot be enforced", path);
  }
  view.exclusive = keyword == "oneOf";
  return view;
}

}  // namespace

Result<SchemaView> view_schema(const Json& schema, const std::string& path) {
  if (const bool* all = schema.boolean()) {
    return view_of(*all ? SchemaForm::anything : SchemaForm::nothing);
  }
  if (!schema.is_object()) {
    return invalid_input("{}: {} is no JSON schema; expected an object or a boolean", path, json_kind(schema));
  }
  Types types = 0;
  if (const Json* type = schema.find("type")) {
    GANNET_TRY(types, read_types(*type, path));
  }
  GANNET_TRY_STATUS(check_refused(schema, types, path));
  if (schema.find("$ref") != nullptr) {
    GANNET_TRY_STATUS(check_alone(schema, "$ref", path));
    return view_of(SchemaForm::reference);
  }
  if (schema.find("const") != nullptr || schema.find("enum") != nullptr) return view_literals(schema, path);
  for (const std::string_view keyword : {"anyOf", "oneOf", "allOf"}) {
    if (schema.find(keyword) != nullptr) return view_alternatives(schema, keyword, path);
  }
  if (types == 0) types = implied_types(schema);
  if (types == 0) return SchemaView{};
  if ((types & kNumber) != 0) types &= ~kInteger;
  SchemaView view = view_of(SchemaForm::typed);
  view.types = types;
  return view;
}

namespace {

// One step of a JSON pointer, its escapes undone.
std::string pointer_step(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    unsigned code = 0;
    if (step[i] == '~' && i + 1 < step.size()) {
      out += step[++i] == '1' ? '/' : '~';
    } else if (step[i] == '%' && i + 2 < step.size() &&
               std::from_chars(step.data() + i + 1, step.data() + i + 3, code, 16).ec == std::errc()) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += step[i];
    }
  }
  return out;
}

const Json* member(const Json& value, const std::string& step) {
  if (const auto* list = value.array()) {
    size_t index = list->size();
    std::from_chars(step.data(), step.data() + step.size(), index);
    return index < list->size() ? &(*list)[index] : nullptr;
  }
  return value.find(step);
}

}  // namespace

Result<const Json*> resolve_reference(const Json& root, const Json& schema, const std::string& path) {
  const auto* text = schema.find("$ref")->string();
  if (text == nullptr) return invalid_input("{}.$ref: expected a string", path);
  std::string_view rest = *text;
  if (!rest.starts_with('#')) {
    return invalid_input("{}.$ref: {} is outside of this schema, which cannot be enforced", path,
                         json_quote(rest.substr(0, 80)));
  }
  rest.remove_prefix(1);
  const Json* found = &root;
  while (found != nullptr && !rest.empty()) {
    if (!rest.starts_with('/')) {
      found = nullptr;
      break;
    }
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    found = member(*found, pointer_step(rest.substr(0, end)));
    rest.remove_prefix(end);
  }
  if (found == nullptr) {
    return invalid_input("{}.$ref: the schema has nothing at {}", path, json_quote(text->substr(0, 80)));
  }
  return found;
}

Result<int64_t> count_keyword(const Json& schema, std::string_view keyword, int64_t absent, const std::string& path) {
  const Json* value = schema.find(keyword);
  if (value == nullptr) return absent;
  const auto number = number_of(*value);
  if (!number || *number < 0 || std::floor(*number) != *number || *number > 1e15) {
    return invalid_input("{}.{}: expected a whole number of at least 0", path, keyword);
  }
  return static_cast<int64_t>(*number);
}

namespace {

// Everything that values of the schema can be, with references followed.
struct Shape {
  const Json* schema = nullptr;
  SchemaView view;
};

std::optional<Shape> shape_of(const Json& root, const Json& schema) {
  const Json* current = &schema;
  for (int hops = 0; hops < 32; ++hops) {
    auto view = view_schema(*current, "");
    if (!view) return {};
    if (view->form != SchemaForm::reference) return Shape{current, *std::move(view)};
    const auto target = resolve_reference(root, *current, "");
    if (!target) return {};
    current = *target;
  }
  return {};
}

bool requires_property(const Json& schema, const std::string& name) {
  const Json* required = schema.find("required");
  if (required == nullptr || !required->is_array()) return false;
  const auto& names = *required->array();
  return std::any_of(names.begin(), names.end(),
                     [&](const Json& one) { return one.string() != nullptr && *one.string() == name; });
}

// Looks for proofs that no value matches two schemas, within a bounded number of steps.
class Overlap {
 public:
  explicit Overlap(const Json& root) : root_(root) {}

  bool disjoint(const Json& a, const Json& b, int depth) {
    constexpr int kDeepest = 8;
    if (depth > kDeepest || !spend(size_of(a) + size_of(b))) return false;
    const auto x = shape_of(root_, a);
    const auto y = shape_of(root_, b);
    if (!x || !y) return false;
    if (x->view.form == SchemaForm::nothing || y->view.form == SchemaForm::nothing) return true;
    if (x->view.form == SchemaForm::alternatives) {
      return std::all_of(x->view.alternatives->begin(), x->view.alternatives->end(),
                         [&](const Json& one) { return disjoint(one, *y->schema, depth + 1); });
    }
    if (y->view.form == SchemaForm::alternatives) return disjoint(*y->schema, *x->schema, depth + 1);
    if (x->view.form == SchemaForm::anything || y->view.form == SchemaForm::anything) return false;
    if (x->view.form == SchemaForm::literals) return literals_apart(x->view.values, y->view);
    if (y->view.form == SchemaForm::literals) return literals_apart(y->view.values, x->view);
    if (!overlap(x->view.types, y->view.types)) return true;
    if (x->view.types != kObject || y->view.types != kObject) return false;
    return told_apart(*x->schema, *y->schema, depth) || told_apart(*y->schema, *x->schema, depth);
  }

 private:
  static int64_t size_of(const Json& schema) {
    return schema.object() == nullptr ? 1 : static_cast<int64_t>(schema.object()->size()) + 1;
  }

  bool spend(int64_t steps) {
    steps_ -= steps;
    return steps_ >= 0;
  }

  bool literals_apart(const std::vector<const Json*>& values, const SchemaView& other) {
    if (!spend(static_cast<int64_t>(values.size() * std::max<size_t>(other.values.size(), 1)))) return false;
    return std::all_of(values.begin(), values.end(), [&](const Json* value) {
      if (other.form == SchemaForm::typed) return (type_of(*value) & other.types) == 0;
      return std::none_of(other.values.begin(), other.values.end(),
                          [&](const Json* theirs) { return may_equal(*value, *theirs); });
    });
  }

  // By a property that `a` requires and whose values cannot be right for both.
  bool told_apart(const Json& a, const Json& b, int depth) {
    const Json* ours = a.find("properties");
    const Json* theirs = b.find("properties");
    if (ours == nullptr || !ours->is_object()) return false;
    const Json* others = b.find("additionalProperties");
    for (const auto& [name, schema] : *ours->object()) {
      if (!spend(size_of(*ours)) || !requires_property(a, name)) continue;
      const Json* counterpart = theirs == nullptr ? nullptr : theirs->find(name);
      if (counterpart == nullptr && others != nullptr && is_false(*others)) return true;
      if (counterpart != nullptr && disjoint(schema, *counterpart, depth + 1)) return true;
    }
    return false;
  }

  const Json& root_;
  int64_t steps_ = 1000000;
};

}  // namespace

bool are_disjoint(const Json& root, const Json::Array& schemas) {
  Overlap overlap(root);
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (size_t j = i + 1; j < schemas.size(); ++j) {
      if (!overlap.disjoint(schemas[i], schemas[j], 0)) return false;
    }
  }
  return true;
}

}  // namespace gannet::text::grammar
