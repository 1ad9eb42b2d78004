#include "text/grammar/answer_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <set>

#include "text/chat_encoder.h"
#include "text/grammar/test_schema.h"
#include "text/grammar/test_walk.h"
#include "text/message_parser.h"
#include "text/protocol/chat_body.h"

namespace gannet::text {
namespace {

using test_data::released_tokenizer;
using test_data::small_tokenizer;
using test_walk::compiler_of;
using test_walk::eos_of;
using test_walk::walk;
using testing::AnyOf;
using testing::HasSubstr;

Json json(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value) << text;
  return *std::move(value);
}

ResponseFormat schema_format(std::string_view schema) {
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::json_schema;
  format.schema = json(schema);
  return format;
}

ResponseFormat text_format(ResponseFormat::Kind kind, std::string text) {
  ResponseFormat format;
  format.kind = kind;
  (kind == ResponseFormat::Kind::regex ? format.regex : format.grammar) = std::move(text);
  return format;
}

ChatRequest request_for(const ResponseFormat& format) {
  ChatRequest request;
  request.thinking = false;
  request.response_format = format;
  return request;
}

std::string walk_text(const Tokenizer& tokenizer, const ResponseFormat& format, uint64_t seed) {
  const auto constraint = compiler_of(tokenizer).constrain(request_for(format));
  if (!constraint) {
    ADD_FAILURE() << constraint.error().message;
    return {};
  }
  return *tokenizer.decode(walk(tokenizer, **constraint, seed));
}

std::string error_of(const ResponseFormat& format) {
  const auto grammar = compiler_of(small_tokenizer()).constrain(request_for(format));
  if (grammar) return "none";
  EXPECT_EQ(grammar.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(grammar.error().message, HasSubstr("response_format"));
  return grammar.error().message;
}

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},
        "required":["city","days"],"additionalProperties":false})",
    R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"},"c":{"type":"number"}}})",
    R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a","zz"],"additionalProperties":{"type":"integer"}})",
    R"({"type":"object","properties":{"ab":{"type":"null"},"ac":{"type":"null"},"é":{"type":"null"}},
        "additionalProperties":{"type":"boolean"}})",
    R"({"type":"object"})",
    R"({"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}}})",
    R"({"type":"array","items":{"enum":["x","y\n\"z",1,null,true,2.5]},"minItems":2,"maxItems":4})",
    R"({"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false})",
    R"({"type":"array","prefixItems":[{"const":1}],"items":{"const":2},"minItems":3})",
    R"({"type":"array"})",
    R"({"type":"string","minLength":2,"maxLength":5})",
    R"({"type":"string","minLength":1})",
    R"({"type":"string","maxLength":40})",
    R"({"type":"string","pattern":"^[a-c]{2,4}-\\d+$"})",
    R"({"type":"string","pattern":"b+"})",
    R"({"type":"string","pattern":"^x|y$"})",
    R"({"type":"integer","exclusiveMinimum":-3,"maximum":120})",
    R"({"type":"integer","minimum":10,"maximum":100,"multipleOf":7})",
    R"({"type":"number","minimum":0,"maximum":1})",
    R"({"type":"number","exclusiveMinimum":0})",
    R"({"type":["string","null"]})",
    R"({"type":"string","enum":["a","b",3]})",
    R"({"const":{"k":[1,2,{"x":null}]}})",
    R"({"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}],"default":null,"title":"T"})",
    R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
                 {"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind"]}]})",
    R"({"allOf":[{"$ref":"#/$defs/P"}],"$defs":{"P":{"type":"object","properties":{"n":{"type":"integer"}}}}})",
    R"({"$ref":"#/$defs/Node","$defs":{"Node":{"type":"object","properties":{"value":{"type":"integer"},
        "next":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}]}},"required":["value","next"]}}})",
    R"({"type":"object","properties":{"items":{"type":"array","items":{"$ref":"#"}}},"required":["items"]})",
    R"({"anyOf":[{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]},{"type":"boolean"}]})",
    R"({"properties":{"a":{"minimum":3,"maximum":9}},"required":["a"]})",
    R"({"type":"object","properties":{"a b":{"type":"string","maxLength":3},"\"q\"\\":{"type":"boolean"}},"required":["\"q\"\\"]})",
    R"(true)",
    R"({})",
};

TEST(SchemaGrammar, RandomAnswersMatchTheirSchema) {
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &released_tokenizer()}) {
    const uint64_t walks = tokenizer == &small_tokenizer() ? 12 : 3;
    for (const char* text : kSchemas) {
      const Json schema = json(text);
      for (uint64_t seed = 0; seed < walks; ++seed) {
        const std::string answer = walk_text(*tokenizer, schema_format(text), seed);
        const auto value = parse_json(answer);
        ASSERT_TRUE(value) << text << "\n" << answer;
        EXPECT_TRUE(test_schema::matches(schema, schema, *value)) << text << "\n" << answer;
      }
    }
  }
}

TEST(SchemaGrammar, AReferenceToItselfAddsNothing) {
  EXPECT_EQ(walk_text(small_tokenizer(), schema_format(R"({"anyOf":[{"$ref":"#"},{"const":7}]})"), 1), "7");
}

TEST(SchemaGrammar, MultiplesWithoutBounds) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto answer = walk_text(small_tokenizer(), schema_format(R"({"type":"number","multipleOf":5})"), seed);
    EXPECT_TRUE(std::regex_match(answer, std::regex("0|-?[1-9][0-9]*[05]|-?5"))) << answer;
  }
}

TEST(SchemaGrammar, FormatsAreWhatTheirNamesSay) {
  const std::pair<const char*, const char*> formats[] = {
      {"date", R"(\d{4}-\d\d-\d\d)"},
      {"time", R"(\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))"},
      {"date-time", R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))"},
      {"duration", R"(P[0-9YMDTHSW]+)"},
      {"email", R"([^@ ]+@[^@ ]+\.[^@ ]+)"},
      {"hostname", R"([A-Za-z0-9.-]+)"},
      {"ipv4", R"((\d{1,3}\.){3}\d{1,3})"},
      {"ipv6", R"([0-9a-fA-F:]+)"},
      {"uuid", R"([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"},
      {"uri", R"([A-Za-z][^: ]*:[^ ]+)"}};
  for (const auto& [name, pattern] : formats) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto format = schema_format(fmt::format(R"({{"type":"string","format":"{}"}})", name));
      const Json value = json(walk_text(small_tokenizer(), format, seed));
      ASSERT_TRUE(value.is_string());
      EXPECT_TRUE(std::regex_match(*value.string(), std::regex(pattern))) << name << " " << *value.string();
    }
  }
}

TEST(TextGrammar, JsonObjectRegexAndGrammar) {
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &released_tokenizer()}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      ResponseFormat object;
      object.kind = ResponseFormat::Kind::json_object;
      const std::string answer = walk_text(*tokenizer, object, seed);
      EXPECT_TRUE(parse_json(answer) && parse_json(answer)->is_object()) << answer;
      EXPECT_TRUE(
          std::regex_match(walk_text(*tokenizer, text_format(ResponseFormat::Kind::regex, "^(ab|c)[0-9]{2}$"), seed),
                           std::regex("(ab|c)[0-9]{2}")));
      EXPECT_THAT(
          walk_text(*tokenizer,
                    text_format(ResponseFormat::Kind::grammar, "root ::= \"yes\" | \"no\" why\nwhy ::= \", \" [a-b]"),
                    seed),
          AnyOf("yes", "no, a", "no, b"));
    }
  }
}

struct Refused {
  const char* schema;
  const char* message;
};

TEST(SchemaGrammar, WhatCannotBeEnforcedIsRefusedByName) {
  const Refused cases[] = {
      {R"({"not":{"type":"string"}})", "not"},
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
       "properties.a: the keyword uniqueItems"},
      {R"({"allOf":[{"type":"object"},{"required":["a"]}]})", "allOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf"},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]})", "oneOf"},
      {R"({"$ref":"https://example.com/schema.json"})", "$ref"},
      {R"({"$ref":"#/$defs/missing"})", "$defs/missing"},
      {R"({"$dynamicRef":"#x"})", "$dynamicRef"},
      {R"({"if":{"type":"string"},"then":{"minLength":1}})", "if"},
      {R"({"type":"object","dependentRequired":{"a":["b"]}})", "dependentRequired"},
      {R"({"type":"object","properties":{"a":{}},"minProperties":1})", "minProperties"},
      {R"({"type":"object","properties":{"a":{}},"patternProperties":{"^x":{}}})", "patternProperties"},
      {R"({"type":"array","contains":{"type":"string"}})", "contains"},
      {R"({"type":"string","format":"regex"})", "format"},
      {R"({"type":"string","pattern":"a","maxLength":4})", "maxLength beside pattern"},
      {R"({"type":"string","pattern":"(?=a)b"})", "(?="},
      {R"({"type":"string","pattern":"a\\b"})", "word boundary"},
      {R"({"type":"string","pattern":"(a)\\1"})", "back reference"},
      {R"({"type":"number","multipleOf":0.01})", "multipleOf"},
      {R"({"type":"object","anyOf":[{"required":["a"]}]})", "type beside anyOf"},
      {R"({"$ref":"#","minLength":2})", "minLength beside $ref"},
      {R"({"type":"string","enum":[1]})", "enum"},
      {R"({"type":"text"})", "type"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "bounds"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "maxItems"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no value matches"},
      {R"({"$ref":"#"})", "no value matches"},
      {R"(false)", "no value matches"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "required"},
      {R"([1])", "JSON schema"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_THAT(error_of(schema_format(schema)), HasSubstr(message)) << schema;
  }
}

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Each is answered, with a grammar or a refusal, and within the budget; what it may not do is crash or hang.
TEST(HostileGrammar, EndsSoon) {
  using Kind = ResponseFormat::Kind;
  std::vector<ResponseFormat> formats = {
      text_format(Kind::regex, "((((a{1,99}){1,99}){1,99}){1,99})"),
      text_format(Kind::regex, ".{0,1999}"),
      text_format(Kind::regex, "(.*a){20}.{30}"),
      text_format(Kind::regex, repeated("(", 5000)),
      text_format(Kind::regex, repeated("(", 5000) + "a" + repeated(")", 5000)),
      text_format(Kind::regex, "a{99999999999999999999}"),
      text_format(Kind::regex, "[z-a]"),
      text_format(Kind::regex, "a\\"),
      text_format(Kind::grammar, "root ::= "),
      text_format(Kind::grammar, "root ::= other"),
      text_format(Kind::grammar, "nothing ::= \"a\""),
      text_format(Kind::grammar, "root ::= root"),
      text_format(Kind::grammar, "root ::= root root | \"a\""),
      text_format(Kind::grammar, "root ::= " + repeated("(", 20000) + "\"a\"" + repeated(")", 20000)),
      text_format(Kind::grammar, "root ::= ((\"a\"{9999}){9999}){9999}"),
      text_format(Kind::grammar, "root ::= Token(1)"),
      text_format(Kind::grammar, "root ::= ExcludeToken(1)"),
      text_format(Kind::grammar, std::string("\xff\xfe\x00\x01 ::= [", 9)),
      text_format(Kind::grammar, "root ::= \"" + repeated("x", 100000) + "\""),
  };
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 3000; ++i) chain += fmt::format("r{} ::= \"a\" r{}\n", i, i + 1);
  formats.push_back(text_format(Kind::grammar, chain + "r3000 ::= \"b\"\n"));
  Json deep(Json::Object{{"type", "string"}});
  for (int i = 0; i < 120; ++i) deep = Json(Json::Object{{"type", "array"}, {"items", std::move(deep)}});
  Json::Object wide;
  for (int i = 0; i < 3000; ++i) wide.emplace_back(fmt::format("p{}", i), Json(Json::Object{{"type", "integer"}}));
  Json::Array values;
  for (int64_t i = 0; i < 15000; ++i) values.emplace_back(fmt::format("value {}", i));
  for (Json schema :
       {deep, Json(Json::Object{{"type", "object"}, {"properties", wide}}), Json(Json::Object{{"enum", values}}),
        json(R"({"type":"array","items":{"type":"array","minItems":99999},"minItems":99999})"),
        json(R"({"type":"string","minLength":1000000000000})")}) {
    ResponseFormat format;
    format.kind = Kind::json_schema;
    format.schema = std::move(schema);
    formats.push_back(std::move(format));
  }
  GrammarCompiler compiler(small_tokenizer(), small_tokenizer().vocab_size() + 40, eos_of(small_tokenizer()),
                           {.budget = std::chrono::milliseconds(300)});
  for (const auto& format : formats) {
    auto grammar = compiler.constrain(request_for(format));
    if (!grammar) {
      EXPECT_EQ(grammar.error().kind, ErrorKind::invalid_input);
      EXPECT_LT(grammar.error().message.size(), 600);
      continue;
    }
    TokenConstraint* constraint = grammar->get();
    auto mask = test_walk::mask_for(small_tokenizer());
    for (int i = 0; i < 20; ++i) {
      constraint->fill_mask(mask);
      constraint->accept(test_walk::allowed_ids(mask).front());
    }
  }
}

TEST(HostileGrammar, TheBudgetStopsTheCompiler) {
  GrammarCompiler impatient(small_tokenizer(), small_tokenizer().vocab_size(), eos_of(small_tokenizer()),
                            {.budget = std::chrono::milliseconds(0)});
  const auto grammar = impatient.constrain(request_for(schema_format(kSchemas[0])));
  ASSERT_FALSE(grammar);
  EXPECT_THAT(grammar.error().message, HasSubstr("takes more than 0 ms"));
}

ChatRequest request_from(const std::string& fields) {
  const std::string body = R"({"messages":[{"role":"user","content":"weather as json?"}],)" + fields + "}";
  auto request = chat_request(body, {});
  EXPECT_TRUE(request) << request.error().message;
  return *std::move(request);
}

const std::string kTools = R"("tools":[
  {"type":"function","function":{"name":"get_weather","strict":true,"parameters":{"type":"object","properties":{
     "city":{"type":"string"},"unit":{"type":"string","enum":["C","F"]},"days":{"type":"integer","minimum":1,"maximum":9},
     "where":{"type":"object","properties":{"lat":{"type":"number"}},"required":["lat"]},
     "maybe":{"anyOf":[{"type":"string","maxLength":4},{"type":"null"}]}},"required":["city","maybe"]}}},
  {"type":"function","function":{"name":"noop","parameters":{"type":"object","properties":{}}}},
  {"type":"function","function":{"name":"open","parameters":{"type":"object","properties":{"x":{"type":"boolean"}},
     "required":["x"],"additionalProperties":true}}}])";

struct Answered {
  std::vector<int32_t> ids;
  ParsedMessage message;
};

// A random rest of the answer under the constraint, and what it says as a whole.
void walk_on(const Tokenizer& tokenizer, const ChatRequest& request, TokenConstraint& constraint, uint64_t seed,
             Answered& answered) {
  const auto ids = walk(tokenizer, constraint, seed);
  answered.ids.insert(answered.ids.end(), ids.begin(), ids.end());
  TokenMessageParser parser(tokenizer, parse_options(request));
  for (const int32_t id : answered.ids) parser.push(id);
  parser.finish(StopCause::stop);
  answered.message = parser.message();
}

Answered answer_to(const Tokenizer& tokenizer, const ChatRequest& request, uint64_t seed) {
  const auto made = compiler_of(tokenizer).constrain(request);
  if (!made || *made == nullptr) {
    ADD_FAILURE() << (made ? "no constraint" : made.error().message);
    return {};
  }
  Answered answered;
  const auto& constraint = *made;
  if (parse_options(request).stage == ParseOptions::Stage::reasoning) {
    const auto reasoning = tokenizer.encode("{\"why\": free</think>");
    for (const int32_t id : *reasoning) {
      constraint->accept(id);
      answered.ids.push_back(id);
    }
  }
  walk_on(tokenizer, request, *constraint, seed, answered);
  return answered;
}

void expect_calls(const ChatRequest& request, const Answered& answered) {
  EXPECT_TRUE(answered.message.unparsed_calls.empty());
  EXPECT_EQ(answered.message.content, "");
  ASSERT_FALSE(answered.message.tool_calls.empty());
  for (const auto& call : answered.message.tool_calls) {
    const auto tool = std::find_if(request.tools.begin(), request.tools.end(),
                                   [&](const ToolDefinition& one) { return one.name == call.name; });
    ASSERT_NE(tool, request.tools.end()) << call.name;
    const auto arguments = parse_json(call.arguments);
    ASSERT_TRUE(arguments) << call.arguments;
    EXPECT_TRUE(test_schema::matches(tool->parameters, tool->parameters, *arguments)) << call.arguments;
  }
}

TEST(ForcedCalls, ParseToDeclaredToolsAndTheirSchemas) {
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &released_tokenizer()}) {
    const uint64_t walks = tokenizer == &small_tokenizer() ? 20 : 4;
    for (const char* thinking : {"enabled", "disabled"}) {
      for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"get_weather"}})"}) {
        const ChatRequest request =
            request_from(kTools + fmt::format(R"(,"tool_choice":{},"thinking":{{"type":"{}"}})", choice, thinking));
        for (uint64_t seed = 0; seed < walks; ++seed) {
          const Answered answered = answer_to(*tokenizer, request, seed);
          expect_calls(request, answered);
          EXPECT_EQ(answered.message.reasoning, std::string(thinking) == "enabled" ? "{\"why\": free" : "");
        }
      }
    }
  }
}

TEST(ForcedCalls, WithoutParallelOnesThereIsOne) {
  const ChatRequest request =
      request_from(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false,"thinking":{"type":"disabled"})");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(answer_to(small_tokenizer(), request, seed).message.tool_calls.size(), 1);
  }
}

TEST(ForcedCalls, OnlyStrictToolsAreRefused) {
  const auto tools = [](bool strict) {
    return request_from(fmt::format(
        R"("tools":[{{"type":"function","function":{{"name":"f","strict":{},"parameters":{{"type":"object","properties":
           {{"a":{{"type":"array","uniqueItems":true}}}}}}}}}}],"tool_choice":"required","thinking":{{"type":"disabled"}})",
        strict));
  };
  EXPECT_TRUE(compiler_of(small_tokenizer()).constrain(tools(false)));
  const auto refused = compiler_of(small_tokenizer()).constrain(tools(true));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr(R"(tools: the parameters of "f".properties.a: the keyword uniqueItems)"));
}

// What the model says by itself, then a random block of calls under the constraint.
Answered called_after(const Tokenizer& tokenizer, const ChatRequest& request, const std::string& text, uint64_t seed) {
  const auto constraint = *compiler_of(tokenizer).constrain(request);
  Answered answered;
  answered.ids = *tokenizer.encode(text);
  for (const int32_t id : answered.ids) {
    EXPECT_FALSE(constraint->active());
    constraint->accept(id);
  }
  EXPECT_TRUE(constraint->active());
  walk_on(tokenizer, request, *constraint, seed, answered);
  return answered;
}

TEST(StrictTools, HoldACallThatTheModelChoosesToMake) {
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &released_tokenizer()}) {
    for (const auto& [thinking, text] : {std::pair("disabled", "I look.\n\n<｜DSML｜"),
                                         std::pair("enabled", "｜DSML｜ why</think>I look.\n\n<｜DSML｜")}) {
      const ChatRequest request = request_from(kTools + fmt::format(R"(,"thinking":{{"type":"{}"}})", thinking));
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const Answered answered = called_after(*tokenizer, request, text, seed);
        EXPECT_EQ(answered.message.content, "I look.");
        EXPECT_TRUE(answered.message.unparsed_calls.empty());
        ASSERT_FALSE(answered.message.tool_calls.empty());
        for (const auto& call : answered.message.tool_calls) {
          if (call.name != "get_weather") continue;
          const auto arguments = parse_json(call.arguments);
          ASSERT_TRUE(arguments) << call.arguments;
          const Json& schema = request.tools[0].parameters;
          EXPECT_TRUE(test_schema::matches(schema, schema, *arguments)) << call.arguments;
        }
      }
    }
  }
}

// A call that opens inside the reasoning would be one, and is not held to its schema.
TEST(StrictTools, NoCallOpensInsideTheReasoning) {
  const ChatRequest request = request_from(kTools);
  const auto constraint = *compiler_of(small_tokenizer()).constrain(request);
  const auto ids = small_tokenizer().encode("why\n\n<");
  for (const int32_t id : *ids) {
    EXPECT_FALSE(constraint->active());
    constraint->accept(id);
  }
  ASSERT_TRUE(constraint->active());
  auto mask = test_walk::mask_for(small_tokenizer());
  constraint->fill_mask(mask);
  EXPECT_EQ(std::ssize(test_walk::allowed_ids(mask)), small_tokenizer().vocab_size() + 40 - 1);
  EXPECT_THAT(test_walk::allowed_ids(mask),
              testing::Not(testing::Contains(*small_tokenizer().token_id(control::kDsml))));
}

TEST(StrictTools, LeaveTextFree) {
  const ChatRequest request = request_from(kTools + R"(,"thinking":{"type":"disabled"})");
  const auto constraint = *compiler_of(small_tokenizer()).constrain(request);
  auto mask = test_walk::mask_for(small_tokenizer());
  // The token of the markup without the sign in front of it opens nothing.
  const auto ids = small_tokenizer().encode("a < b, {\"x\": 1} ｜DSML｜ > c");
  for (const int32_t id : *ids) {
    EXPECT_FALSE(constraint->active());
    constraint->fill_mask(mask);
    EXPECT_EQ(std::ssize(test_walk::allowed_ids(mask)), small_tokenizer().vocab_size() + 40);
    constraint->accept(id);
  }
  EXPECT_FALSE(constraint->active());
}

const std::string kFormat =
    R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":
       {"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}})";

// Field reports A11 and A12: the reasoning is free, and the form holds from its end on, not a token earlier or later.
TEST(Reasoning, IsFreeAndThenTheFormHolds) {
  const ChatRequest request = request_from(kFormat);
  for (const Tokenizer* tokenizer : {&small_tokenizer(), &released_tokenizer()}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Answered answered = answer_to(*tokenizer, request, seed);
      EXPECT_EQ(answered.message.reasoning, "{\"why\": free");
      const auto value = parse_json(answered.message.content);
      ASSERT_TRUE(value && value->find("a") != nullptr) << answered.message.content;
    }
  }
}

TEST(Reasoning, DoesNotEndTheAnswer) {
  const auto constraint = *compiler_of(small_tokenizer()).constrain(request_from(kFormat));
  auto mask = test_walk::mask_for(small_tokenizer());
  constraint->fill_mask(mask);
  const auto allowed = test_walk::allowed_ids(mask);
  const std::set<int32_t> ids(allowed.begin(), allowed.end());
  EXPECT_FALSE(ids.contains(eos_of(small_tokenizer())));
  EXPECT_FALSE(ids.contains(*small_tokenizer().token_id(control::kDsml)));
  EXPECT_TRUE(ids.contains(*small_tokenizer().token_id(control::kThinkEnd)));
  EXPECT_GT(ids.size(), 500);
}

TEST(AnswerGrammar, IsAbsentWhereNothingIsAsked) {
  for (const char* fields : {R"("temperature":1)", R"("response_format":{"type":"text"})"}) {
    const auto grammar = compiler_of(small_tokenizer()).constrain(request_from(fields));
    ASSERT_TRUE(grammar);
    EXPECT_EQ(*grammar, nullptr);
  }
  const auto automatic =
      compiler_of(small_tokenizer())
          .constrain(request_from(
              R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}])"));
  ASSERT_TRUE(automatic);
  EXPECT_EQ(*automatic, nullptr);
}

TEST(AnswerGrammar, WithToolsTheFormOrACallComes) {
  const ChatRequest request = request_from(kTools + "," + kFormat + R"(,"thinking":{"type":"disabled"})");
  int called = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Answered answered = answer_to(small_tokenizer(), request, seed);
    called += answered.message.tool_calls.empty() ? 0 : 1;
    if (answered.message.tool_calls.empty()) {
      EXPECT_TRUE(parse_json(answered.message.content)) << answered.message.content;
    }
  }
  EXPECT_GT(called, 0);
  EXPECT_LT(called, 30);
}

TEST(AnswerGrammar, GoesOnFromTheBeginningInThePrompt) {
  ChatRequest request = request_for(schema_format(R"({"type":"array","items":{"type":"integer"}})"));
  Message message;
  message.role = Role::assistant;
  message.content = "[1, 2";
  message.prefix = true;
  request.messages = {message};
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto constraint = *compiler_of(small_tokenizer()).constrain(request);
    const std::string rest = *small_tokenizer().decode(walk(small_tokenizer(), *constraint, seed));
    EXPECT_TRUE(parse_json("[1, 2" + rest)) << rest;
  }
  request.messages.back().content = "Numbers: [";
  const auto refused = compiler_of(small_tokenizer()).constrain(request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("messages"));
}

TEST(AnswerGrammar, AfterTheEndOnlyTheEndMayCome) {
  const auto constraint = *compiler_of(small_tokenizer()).constrain(request_for(schema_format(R"({"const":1})")));
  constraint->accept(*small_tokenizer().token_id("1"));
  auto mask = test_walk::mask_for(small_tokenizer());
  for (int i = 0; i < 3; ++i) {
    constraint->fill_mask(mask);
    EXPECT_THAT(test_walk::allowed_ids(mask), testing::ElementsAre(eos_of(small_tokenizer())));
    constraint->accept(eos_of(small_tokenizer()));
  }
}

}  // namespace
}  // namespace gannet::text
