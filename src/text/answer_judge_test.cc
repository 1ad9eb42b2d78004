#include "text/answer_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gannet::text {
namespace {

using ::testing::HasSubstr;

bool accepts(std::string_view rules, const ParsedMessage& answer) {
  const auto judge = AnswerJudge::from_json(*parse_json(rules));
  EXPECT_TRUE(judge) << rules;
  return judge && judge->accepts(answer);
}

bool accepts(std::string_view rules, const std::string& content) {
  ParsedMessage answer;
  answer.content = content;
  return accepts(rules, answer);
}

ParsedMessage calling(std::vector<ParsedCall> calls) {
  ParsedMessage answer;
  answer.tool_calls = std::move(calls);
  answer.finish_reason = FinishReason::tool_calls;
  return answer;
}

std::string error_of(std::string_view rules) {
  const auto judge = AnswerJudge::from_json(*parse_json(rules));
  return judge ? "" : judge.error().message;
}

TEST(AnswerJudge, Exact) {
  EXPECT_TRUE(accepts(R"({"exact": "Hello."})", "Hello."));
  EXPECT_TRUE(accepts(R"({"exact": "Hello."})", "\n Hello. "));
  EXPECT_FALSE(accepts(R"({"exact": "Hello."})", "hello."));
  EXPECT_FALSE(accepts(R"({"exact": "Hello."})", "Hello. You"));
  EXPECT_FALSE(accepts(R"({"exact": "Hello."})", ""));
}

TEST(AnswerJudge, TheLastNumberCounts) {
  EXPECT_TRUE(accepts(R"({"number": 36})", "12 * 3 = 36."));
  EXPECT_TRUE(accepts(R"({"number": 36})", "36"));
  EXPECT_FALSE(accepts(R"({"number": 12})", "12 * 3 = 36."));
  EXPECT_FALSE(accepts(R"({"number": 6})", "36"));
  EXPECT_FALSE(accepts(R"({"number": 0})", "none"));
  EXPECT_FALSE(accepts(R"({"number": 0})", ""));
  EXPECT_TRUE(accepts(R"({"number": -4})", "3 - 7 = -4"));
  EXPECT_TRUE(accepts(R"({"number": 7})", "Work out 12-7"));
  EXPECT_TRUE(accepts(R"({"number": 1.5})", "It is 1.5."));
  EXPECT_TRUE(accepts(R"({"number": 1234567.25})", "It is 1,234,567.25."));
  EXPECT_TRUE(accepts(R"({"number": 2})", "1,2"));
  EXPECT_TRUE(accepts(R"({"number": 5000})", "1,5000"));
}

TEST(AnswerJudge, ContainsWholeWords) {
  EXPECT_TRUE(accepts(R"({"contains": "red fox"})", "It is a Red Fox, I think."));
  EXPECT_TRUE(accepts(R"({"contains": "12"})", "Room 12."));
  EXPECT_FALSE(accepts(R"({"contains": "12"})", "Room 123."));
  EXPECT_FALSE(accepts(R"({"contains": "ox"})", "a fox"));
  EXPECT_TRUE(accepts(R"({"contains": "ox"})", "a fox, an ox"));
  EXPECT_FALSE(accepts(R"({"contains": "caf"})", "a café"));
  EXPECT_TRUE(accepts(R"({"contains": ["a", "b"]})", "B and A"));
  EXPECT_FALSE(accepts(R"({"contains": ["a", "c"]})", "b and a"));
}

TEST(AnswerJudge, JsonByValue) {
  EXPECT_TRUE(accepts(R"({"json": {"a": 1, "b": ["x", null, true]}})", R"({"b": ["x", null, true], "a": 1.0})"));
  EXPECT_FALSE(accepts(R"({"json": {"a": 1}})", R"({"a": "1"})"));
  EXPECT_FALSE(accepts(R"({"json": {"a": 1}})", R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(accepts(R"({"json": {"a": 1, "b": 2}})", R"({"a": 1})"));
  EXPECT_FALSE(accepts(R"({"json": [1, 2]})", "[2, 1]"));
  EXPECT_FALSE(accepts(R"({"json": [1, 2]})", "[1]"));
  EXPECT_FALSE(accepts(R"({"json": {"a": true}})", R"({"a": false})"));
  EXPECT_FALSE(accepts(R"({"json": {"a": 1}})", R"(Here: {"a": 1})"));
}

TEST(AnswerJudge, JsonBySchema) {
  constexpr std::string_view kSchema = R"({"json_schema": {"type": "object", "description": "of a person", "properties":
      {"age": {"type": "integer"}, "size": {"enum": ["s", "m"]}, "kind": {"const": 1},
       "tags": {"type": "array", "items": {"type": "string"}}},
      "required": ["age"], "additionalProperties": false}})";
  EXPECT_TRUE(accepts(kSchema, R"({"age": 4})"));
  EXPECT_TRUE(accepts(kSchema, R"({"tags": ["x"], "age": 4.0, "size": "m", "kind": 1})"));
  EXPECT_TRUE(accepts(kSchema, R"({"tags": [], "age": -4})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4.5})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": "4"})"));
  EXPECT_FALSE(accepts(kSchema, R"({"size": "m"})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4, "size": "l"})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4, "kind": 2})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4, "tags": [1]})"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4, "other": 1})"));
  EXPECT_FALSE(accepts(kSchema, "[4]"));
  EXPECT_FALSE(accepts(kSchema, R"({"age": 4)"));
  EXPECT_FALSE(accepts(R"({"json_schema": {"type": "object"}, "json": {"a": 1}})", "{}"));
}

TEST(AnswerJudge, Calls) {
  constexpr std::string_view kOne = R"({"tool_call": {"name": "f", "arguments": {"a": 1, "b": "x"}}})";
  EXPECT_TRUE(accepts(kOne, calling({{"f", R"({"b": "x", "a": 1})"}})));
  EXPECT_FALSE(accepts(kOne, calling({{"g", R"({"a": 1, "b": "x"})"}})));
  EXPECT_FALSE(accepts(kOne, calling({{"f", R"({"a": 1})"}})));
  EXPECT_FALSE(accepts(kOne, calling({{"f", R"({"a": "1", "b": "x"})"}})));
  EXPECT_FALSE(accepts(kOne, calling({{"f", R"({"a": 1, "b": "x"})"}, {"f", R"({"a": 1, "b": "x"})"}})));
  EXPECT_FALSE(accepts(kOne, "f"));
  constexpr std::string_view kTwo =
      R"({"tool_call": [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]})";
  EXPECT_TRUE(accepts(kTwo, calling({{"g", "{}"}, {"f", "{}"}})));
  EXPECT_FALSE(accepts(kTwo, calling({{"f", "{}"}, {"f", "{}"}})));
  EXPECT_FALSE(accepts(kTwo, calling({{"f", "{}"}})));
}

TEST(AnswerJudge, NoCall) {
  EXPECT_TRUE(accepts(R"({"no_call": true})", "Hello."));
  EXPECT_FALSE(accepts(R"({"no_call": true})", " "));
  EXPECT_FALSE(accepts(R"({"no_call": true})", calling({{"f", "{}"}})));
  EXPECT_FALSE(accepts(R"({"no_call": true, "exact": "Hello."})", "Hi."));
}

TEST(AnswerJudge, WhatWasCutOffIsWrong) {
  ParsedMessage answer;
  answer.content = "Hello.";
  answer.finish_reason = FinishReason::length;
  EXPECT_FALSE(accepts(R"({"exact": "Hello."})", answer));
}

TEST(AnswerJudge, BadRules) {
  EXPECT_THAT(error_of("{}"), HasSubstr("at least one rule"));
  EXPECT_THAT(error_of("[]"), HasSubstr("at least one rule"));
  EXPECT_THAT(error_of(R"({"exactly": "x"})"), HasSubstr("'exactly' is no rule"));
  EXPECT_THAT(error_of(R"({"exact": 1})"), HasSubstr("exact is 1; it must be a string"));
  EXPECT_THAT(error_of(R"({"number": "1"})"), HasSubstr("a number"));
  EXPECT_THAT(error_of(R"({"contains": [""]})"), HasSubstr("contains"));
  EXPECT_THAT(error_of(R"({"tool_call": {"name": "f"}})"), HasSubstr("a name and arguments"));
  EXPECT_THAT(error_of(R"({"no_call": false})"), HasSubstr("no_call is false; it must be true"));
  EXPECT_THAT(error_of(R"({"json_schema": {"type": "float"}})"), HasSubstr("type is \"float\""));
  EXPECT_THAT(error_of(R"({"json_schema": {"items": {"minimum": 3}}})"), HasSubstr("minimum is 3"));
  EXPECT_THAT(error_of(R"({"json_schema": {"required": "a"}})"), HasSubstr("required is \"a\""));
  EXPECT_THAT(error_of(R"({"json_schema": {"properties": {"a": 1}}})"), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace gannet::text
