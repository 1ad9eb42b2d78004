#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/rules.h"
#include "text/grammar/schema_keywords.h"
#include "text/json.h"

namespace gannet::text::grammar {

// JSON without a schema, shared by all schemas of one grammar.
class JsonRules {
 public:
  explicit JsonRules(Rules& rules);

  Part space() const { return rule(space_); }
  Part value() const { return rule(value_); }
  Part object() const { return rule(object_); }
  Part array() const { return rule(array_); }
  Part string() const { return rule(string_); }
  Part number() const { return rule(number_); }
  Part integer() const { return rule(integer_); }
  Part boolean() const { return rule(boolean_); }

 private:
  RuleId space_, value_, object_, array_, string_, number_, integer_, boolean_;
};

// Members in a fixed order, of which some may be missing, and others behind them.
struct MemberPart {
  Part part;
  bool required = false;
};
struct MemberList {
  Part some;  // at least one
  bool may_be_empty = false;
};
MemberList member_list(Rules& rules, const std::vector<MemberPart>& named, const std::optional<Part>& other,
                       const Part& separator);

// One way to write a value as an argument of a call.
struct ArgumentForm {
  bool is_text = false;  // as it is; otherwise as JSON
  Part value;
};

// Turns one schema into rules. Members of objects come in the order of the schema; others are allowed if it says so, or
// if it has no "properties" at all.
class SchemaRules {
 public:
  // `name` stands for the schema in error messages. All must outlive the object.
  SchemaRules(Rules& rules, const JsonRules& json, const Json& root, std::string name);

  // JSON text that matches the whole schema. Errors (invalid_input) name the place and the keyword.
  Result<Part> value();

  // For a schema of an object, how its members are written as arguments of a call.
  struct Argument {
    std::string name;
    bool required = false;
    std::vector<ArgumentForm> forms;
  };
  struct Arguments {
    std::vector<Argument> named;
    Part other_name;                   // of arguments that the schema does not name
    std::vector<ArgumentForm> others;  // empty: there are none
  };
  Result<Arguments> arguments();

 private:
  struct Member {
    std::string name;
    const Json* schema = nullptr;
    bool required = false;
  };
  struct Members {
    std::vector<Member> named;
    const Json* others = nullptr;       // schema of members with other names; null: there may be none
    const Json* other_names = nullptr;  // schema of those names; null: all that are not among the named
  };

  Status check_size() const;
  Status check_exclusive(const SchemaView& view, const std::string& path) const;

  Result<Part> value_of(const Json& schema, const std::string& path);
  Result<std::vector<Part>> value_alternatives(const Json& schema, const std::string& path);
  Result<Part> typed_value(const Json& schema, Types type, const std::string& path);
  Result<Part> string_value(const Json& schema, const std::string& path, bool as_json);
  Result<Part> counted_text(const Json& schema, const std::string& path, bool as_json);
  Result<Part> number_value(const Json& schema, bool whole, const std::string& path);
  Result<Part> array_value(const Json& schema, const std::string& path);
  std::vector<Part> array_alternatives(std::vector<Part> start, size_t fixed, const Part& item, int64_t least,
                                       int64_t most) const;
  Part comma() const;

  Result<Part> object_value(const Json& schema, const std::string& path);
  Part member(const Part& name, const Part& value) const;
  Result<Members> members_of(const Json& schema, const std::string& path);
  Status restrict_names(const Json& schema, Members& members, const std::string& path);
  Status check_member_counts(const Json& schema, const Members& members, const std::string& path) const;
  Result<Part> other_name(const Members& members, const std::string& path);
  Result<std::string> other_name_pattern(const Members& members, bool as_json, const std::string& path) const;

  Status collect_forms(const Json& schema, const std::string& path, int depth, std::vector<ArgumentForm>& forms);
  Part any_text();

  Rules& rules_;
  const JsonRules& json_;
  const Json& root_;
  std::string name_;
  std::map<const Json*, RuleId> values_;  // schemas whose rules exist already, so that they may contain themselves
  std::deque<Json> made_;                 // schemas that stand for a part of another
  int64_t counted_states_ = 0;
};

}  // namespace gannet::text::grammar
