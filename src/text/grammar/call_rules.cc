#include "text/grammar/call_rules.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace gannet::text::grammar {
namespace {

class CallRules {
 public:
  CallRules(Rules& rules, const JsonRules& json, const CallFormat& format)
      : rules_(rules), json_(json), format_(format), dsml_(token(format.dsml)) {}

  Result<Part> block(std::span<const ToolDefinition> tools) {
    std::vector<Part> calls;
    for (const ToolDefinition& tool : tools) {
      GANNET_TRY(auto one, call(tool));
      calls.push_back(std::move(one));
    }
    const Part any = rule(rules_.add(std::move(calls)));
    std::vector<Part> parts;
    if (format_.opens) parts = {literal("\n\n<"), dsml_, literal(" calls>\n")};
    parts.push_back(any);
    if (format_.parallel) parts.push_back(rule(rules_.add({literal(""), repeat(any, 1, -1)})));
    parts.push_back(sequence({literal("</"), dsml_, literal(" calls>")}));
    return rule(rules_.add({sequence(parts)}));
  }

 private:
  Result<Part> call(const ToolDefinition& tool) {
    static const Json kAnyObject(Json::Object{{"type", "object"}});
    const std::string name = fmt::format("tools: the parameters of {}", json_quote(tool.name));
    const Json& schema = tool.parameters.is_null() ? kAnyObject : tool.parameters;
    const bool enforced = tool.strict || !format_.only_strict;
    auto arguments = SchemaRules(rules_, json_, enforced ? schema : kAnyObject, name).arguments();
    if (!arguments && tool.strict) return tl::unexpected(arguments.error());
    if (!arguments) {
      spdlog::warn("{}; the tool is not strict, so its arguments are not held to the schema",
                   arguments.error().message);
      arguments = SchemaRules(rules_, json_, kAnyObject, name).arguments();
    }
    const Part written = arguments_part(*arguments);
    return rule(rules_.add({sequence({literal("<"), dsml_, literal(fmt::format(" invoke name=\"{}\">\n", tool.name)),
                                      written, literal("\n</"), dsml_, literal(" invoke>\n")})}));
  }

  // The parameters, one a line; without any, nothing.
  Part arguments_part(const SchemaRules::Arguments& arguments) {
    std::vector<MemberPart> named;
    for (const auto& one : arguments.named) named.push_back({parameter(literal(one.name), one.forms), one.required});
    std::optional<Part> other;
    if (!arguments.others.empty()) other = parameter(arguments.other_name, arguments.others);
    const MemberList list = member_list(rules_, named, other, literal("\n"));
    std::vector<Part> alternatives = {list.some};
    if (list.may_be_empty) alternatives.push_back(literal(""));
    return rule(rules_.add(std::move(alternatives)));
  }

  Part parameter(const Part& name, const std::vector<ArgumentForm>& forms) {
    std::vector<Part> values;
    for (const auto& [is_text, value] : forms) {
      values.push_back(sequence({literal(is_text ? "true\">" : "false\">"), value}));
    }
    const Part any = rule(rules_.add(std::move(values)));
    return rule(rules_.add({sequence({literal("<"), dsml_, literal(" parameter name=\""), name, literal("\" string=\""),
                                      any, literal("</"), dsml_, literal(" parameter>")})}));
  }

  Rules& rules_;
  const JsonRules& json_;
  const CallFormat& format_;
  Part dsml_;
};

}  // namespace

Result<Part> call_block(Rules& rules, const JsonRules& json, std::span<const ToolDefinition> tools,
                        const CallFormat& format) {
  return CallRules(rules, json, format).block(tools);
}

}  // namespace gannet::text::grammar
