#include <fmt/format.h>

#include <utility>

#include "text/grammar/schema_rules.h"

// How the members of an object are written as arguments of a call.
namespace gannet::text::grammar {
namespace {

constexpr int kDeepestForms = 32;

}  // namespace

Result<SchemaRules::Arguments> SchemaRules::arguments() {
  GANNET_TRY_STATUS(check_size());
  const Json* schema = &root_;
  SchemaView view;
  for (int hops = 0; hops < kDeepestForms; ++hops) {
    GANNET_TRY(view, view_schema(*schema, name_));
    if (view.form == SchemaForm::reference) {
      GANNET_TRY(schema, resolve_reference(root_, *schema, name_));
    } else if (view.form == SchemaForm::alternatives && view.alternatives->size() == 1) {
      schema = &view.alternatives->front();
    } else {
      break;
    }
  }
  Arguments arguments;
  if (view.form == SchemaForm::anything) return arguments;
  if (view.form != SchemaForm::typed || (view.types & kObject) == 0) {
    return invalid_input("{}: expected the schema of an object", name_);
  }
  GANNET_TRY(const Members members, members_of(*schema, name_));
  for (const Member& one : members.named) {
    if (one.name.find_first_of("\"<>\n\r") != std::string::npos) {
      return invalid_input("{}.properties: {} holds a character that cannot stand in a call", name_,
                           json_quote(one.name));
    }
    Argument argument{one.name, one.required, {}};
    GANNET_TRY_STATUS(collect_forms(*one.schema, fmt::format("{}.properties.{}", name_, one.name), 0, argument.forms));
    arguments.named.push_back(std::move(argument));
  }
  if (members.others == nullptr) return arguments;
  if (members.other_names != nullptr) {
    return invalid_input("{}: patternProperties and propertyNames of a call's arguments cannot be enforced", name_);
  }
  GANNET_TRY(const std::string pattern, other_name_pattern(members, false, name_));
  arguments.other_name = rule(rules_.add_regex(pattern));
  GANNET_TRY_STATUS(collect_forms(*members.others, name_ + ".additionalProperties", 0, arguments.others));
  return arguments;
}

Status SchemaRules::collect_forms(const Json& schema, const std::string& path, int depth,
                                  std::vector<ArgumentForm>& forms) {
  if (depth > kDeepestForms) return invalid_input("{}: references and alternatives nest too deeply", path);
  GANNET_TRY(const SchemaView view, view_schema(schema, path));
  switch (view.form) {
    case SchemaForm::nothing:
      return {};
    case SchemaForm::anything:
      forms.push_back({true, any_text()});
      for (const Part& part : {json_.object(), json_.array(), json_.number(), json_.boolean(), literal("null")}) {
        forms.push_back({false, part});
      }
      return {};
    case SchemaForm::reference: {
      GANNET_TRY(const Json* target, resolve_reference(root_, schema, path));
      return collect_forms(*target, path + ".$ref", depth + 1, forms);
    }
    case SchemaForm::literals:
      for (const Json* value : view.values) {
        forms.push_back({value->is_string(), literal(value->is_string() ? *value->string() : python_json(*value))});
      }
      return {};
    case SchemaForm::alternatives:
      GANNET_TRY_STATUS(check_exclusive(view, path));
      for (size_t i = 0; i < view.alternatives->size(); ++i) {
        GANNET_TRY_STATUS(collect_forms((*view.alternatives)[i], fmt::format("{}.{}", path, i), depth + 1, forms));
      }
      return {};
    case SchemaForm::typed:
      break;
  }
  for (Types type = kNull; type <= kObject; type *= 2) {
    if ((view.types & type) == 0) continue;
    const bool is_text = type == kString;
    GANNET_TRY(auto part, is_text ? string_value(schema, path, false) : typed_value(schema, type, path));
    forms.push_back({is_text, std::move(part)});
  }
  return {};
}

Part SchemaRules::any_text() {
  return rule(rules_.add_regex(R"([\s\S]*)"));
}

}  // namespace gannet::text::grammar
