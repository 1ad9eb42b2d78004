#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/core_body.h"
#include "text/protocol/messages_body.h"
#include "text/protocol/responses_body.h"
#include "text/protocol/sealed_reasoning.h"
#include "text/test_data.h"

namespace gannet::text {
namespace {

using ::testing::HasSubstr;

using Reader = std::function<Result<ChatRequest>(std::string_view)>;

Result<ChatRequest> read_chat(std::string_view body) {
  return chat_request(body);
}
Result<ChatRequest> read_messages(std::string_view body) {
  return messages_request(body);
}
Result<ChatRequest> read_responses(std::string_view body) {
  return responses_request(body);
}

const std::pair<const char*, Reader> kReaders[] = {
    {"chat", read_chat}, {"messages", read_messages}, {"responses", read_responses}, {"core", core_request}};

std::string chat_prompt(std::string_view body) {
  const auto request = chat_request(body);
  return request ? render_prompt(*request).text() : "error: " + request.error().message;
}

TEST(Bodies, HostileBodiesAreErrors) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::string bodies[] = {"",
                                " ",
                                "null",
                                "[]",
                                "\"x\"",
                                "5",
                                "{",
                                "{}{}",
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}",
                                R"({"messages":[{"role":"user","content":"\ud800"}]})",
                                R"({"messages":)" + deep + "}",
                                R"({"messages":[{"role":"user","content":)" + deep + "}]}",
                                R"({"a":1e999,"messages":[{"role":"user","content":"x"}]})",
                                std::string("{\"messages\":[]}\0", 16)};
  for (const std::string& body : bodies) {
    for (const auto& [name, read] : kReaders) {
      const auto request = read(body);
      ASSERT_FALSE(request) << name << " " << body.substr(0, 60);
      EXPECT_EQ(request.error().kind, ErrorKind::invalid_input);
      EXPECT_LT(request.error().message.size(), 300U);
    }
  }
}

// Replaces one value of a good body by values of every other kind: never a crash, and what is accepted renders.
void try_wrong_types(const Reader& read, const Json& body) {
  const Json replacements[] = {{},
                               Json(true),
                               Json(int64_t{-1}),
                               Json(uint64_t{1} << 63U),
                               Json(1.5),
                               Json("text"),
                               Json(Json::Array()),
                               Json(Json::Array{Json("x"), Json(Json::Array{{}})}),
                               Json(Json::Object()),
                               Json(Json::Object{{"type", "text"}, {"text", 5.0}})};
  const std::function<void(const std::function<Json(Json)>&, const Json&)> visit =
      [&](const std::function<Json(Json)>& rebuild, const Json& value) {
        for (const Json& replacement : replacements) {
          const auto request = read(python_json(rebuild(replacement)));
          if (!request) {
            EXPECT_FALSE(request.error().message.empty());
            continue;
          }
          for (const auto chat_template : {ChatTemplate::api, ChatTemplate::checkpoint, ChatTemplate::v4}) {
            EXPECT_TRUE(encode_chat(*request, test_data::small_tokenizer(), chat_template));
          }
        }
        if (const auto* array = value.array()) {
          for (size_t index = 0; index < array->size(); ++index) {
            visit(
                [&, index](Json inner) {
                  Json::Array copy = *array;
                  copy[index] = std::move(inner);
                  return rebuild(Json(std::move(copy)));
                },
                (*array)[index]);
          }
        } else if (const auto* object = value.object()) {
          for (size_t index = 0; index < object->size(); ++index) {
            visit(
                [&, index](Json inner) {
                  Json::Object copy = *object;
                  copy[index].second = std::move(inner);
                  return rebuild(Json(std::move(copy)));
                },
                (*object)[index].second);
          }
        }
      };
  visit([](Json value) { return value; }, body);
}

TEST(Bodies, WrongTypesEverywhere) {
  try_wrong_types(
      read_chat,
      parse_json(
          R"({"model":"m","messages":[{"role":"system","content":"json"},{"role":"user","content":[{"type":"text","text":"t"},
{"type":"image_url","image_url":{"url":"https://x/a.png","detail":"low"}}]},{"role":"assistant","content":"c",
"reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"1","content":"r"},{"role":"assistant","content":"p","prefix":true}],
"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object",
"properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}},"b":{"anyOf":[{"type":"null"}]}},
"required":["a","b"],"$def":{"D":{"$ref":"#"}}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},
"thinking":{"type":"disabled"},"reasoning_effort":"low","response_format":{"type":"json_schema","json_schema":
{"schema":{"type":"object"}}},"stop":["a"],"stream":true,"stream_options":{"include_usage":true},"logit_bias":{"5":1},
"chat_template_kwargs":{"thinking":false,"reasoning_effort":5},"temperature":1,"seed":5,"n":1,"logprobs":true,
"top_logprobs":3,"stop_token_ids":[1],"max_tokens":5})")
          .value());
  try_wrong_types(
      read_messages,
      parse_json(
          R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[
{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"document","source":
{"media_type":"x"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result",
"tool_use_id":"1","content":[{"type":"tool_reference","tool_name":"g"}]}]},{"role":"system","content":[
{"type":"tool_addition","tool":{"type":"tool_reference","name":"g"}}]}],"tools":[{"name":"f","input_schema":
{"type":"object"}},{"name":"g","input_schema":{"type":"object"},"defer_loading":true}],"tool_choice":{"type":"tool",
"name":"f"},"thinking":{"type":"disabled"},"output_config":{"effort":"low"},"stop_sequences":["x"],"top_k":5})")
          .value());
  try_wrong_types(
      read_responses,
      parse_json(
          R"({"model":"m","instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"t"},
{"type":"input_image","image_url":"https://x"}]},{"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}]},
{"role":"assistant","content":"json"},{"type":"function_call","call_id":"1","name":"f","namespace":"n","arguments":"{}"},
{"type":"tool_search_call","call_id":"2","execution":"client","arguments":{"q":1}},{"type":"function_call_output",
"call_id":"1","output":"o"},{"type":"tool_search_output","call_id":"2","tools":[{"type":"namespace","name":"l","tools":
[{"type":"function","name":"k"}]}]}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true},
{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"tool_search",
"execution":"client"}],"tool_choice":{"type":"function","name":"f"},"reasoning":{"effort":"none"},"text":{"format":
{"type":"json_object"}},"max_output_tokens":5})")
          .value());
}

TEST(Bodies, ErrorsNameTheField) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":[{"type":"video"}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":"x"}],"temperature":3})", "temperature"},
      {R"({"messages":[{"role":"user","content":"x"}],"max_tokens":0})", "max_tokens"},
      {R"({"messages":[{"role":"user","content":"x"}],"stop":["a",""]})", "stop[1]"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":""}}]})",
       "tools[0].function.name"},
      {R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"most"})", "reasoning_effort"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],)"
       R"("tool_choice":"always"})",
       "tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],"allowed_token_ids":[]})", "allowed_token_ids"},
      {R"({"messages":[{"role":"user","content":"x"}],"allowed_token_ids":[1,-1]})", "allowed_token_ids[1]"},
      {R"({"messages":[{"role":"user","content":"x"}],"bad_words":[""]})", "bad_words[0]"},
      {R"({"messages":[{"role":"user","content":"x"}],"truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"messages":[{"role":"user","content":"x"}],"thinking_token_budget":-1})", "thinking_token_budget"},
      {R"({"messages":[{"role":"user","content":"x"}],"priority":1.5})", "priority"},
      {R"({"messages":[{"role":"user","content":"x"}],"guided_regex":""})", "guided_regex"},
      {R"({"messages":[{"role":"user","content":"x"}],"guided_json":"{"})", "guided_json"},
      {R"({"messages":[{"role":"user","content":"x"}],"structured_outputs":{"choice":["a",5]}})",
       "structured_outputs.choice[1]"},
      {R"({"messages":[{"role":"user","content":"x"}],"structured_outputs":{"structural_tag":"x"}})",
       "structured_outputs.structural_tag"},
      {R"({"messages":[{"role":"user","content":"x"}],"guided_regex":"a","structured_outputs":{"json":{}}})",
       "guided_regex"},
      {R"({"messages":[{"role":"user","content":"x"}],"guided_regex":"a","response_format":{"type":"regex","regex":"b"}})",
       "response_format"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]})",
       "messages[0].content[0].image_url"},
  };
  for (const auto& [body, field] : cases) {
    const auto request = chat_request(body);
    ASSERT_FALSE(request) << body;
    EXPECT_THAT(request.error().message, HasSubstr(field));
  }
}

std::string body_with(const std::string& member) {
  return R"({"messages":[{"role":"user","content":"x"}],)" + member + "}";
}

TEST(ChatBody, BoundsStopStrings) {
  const std::string longest(1024, 'x');
  EXPECT_EQ(chat_request(body_with("\"stop\":\"" + longest + "\"")).value().sampling.stop.front(), longest);
  EXPECT_THAT(chat_request(body_with("\"stop\":\"" + longest + "x\"")).error().message,
              HasSubstr("stop: 1025 bytes; a stop string may have at most 1024"));
  EXPECT_THAT(chat_request(body_with("\"stop\":[\"a\",\"" + longest + "x\"]")).error().message,
              HasSubstr("stop[1]: 1025 bytes"));
}

std::string biases(size_t count) {
  std::string members;
  for (size_t id = 0; id < count; ++id) members += fmt::format("{}\"{}\":1", id == 0 ? "" : ",", id);
  return body_with("\"logit_bias\":{" + members + "}");
}

TEST(ChatBody, BoundsLogitBias) {
  EXPECT_EQ(chat_request(biases(1024)).value().sampling.logit_bias.size(), 1024U);
  for (const size_t count : {1025, 1'000'000}) {
    const auto request = chat_request(biases(count));
    ASSERT_FALSE(request);
    EXPECT_THAT(request.error().message, HasSubstr(fmt::format("logit_bias: {} token ids; at most 1024", count)));
  }
  EXPECT_TRUE(chat_request(body_with(R"("logit_bias":{"5":null})")).value().sampling.logit_bias.empty());
  EXPECT_THAT(chat_request(body_with(R"("logit_bias":{"5":101})")).error().message,
              HasSubstr("logit_bias.5: 101 is out of range"));
  EXPECT_THAT(chat_request(body_with(R"("logit_bias":{"5":"x"})")).error().message, HasSubstr("logit_bias.5"));
}

TEST(ChatBody, WhatGannetAcceptsBeyondTheOfficialApi) {
  const std::string plain =
      chat_prompt(R"({"messages":[{"role":"user","content":"q"}],"thinking":{"type":"disabled"}})");
  for (const std::string more : {R"("chat_template_kwargs":{"thinking":false})",
                                 R"("chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"max")",
                                 R"("thinking":false)", R"("reasoning_effort":"none","unknown":{"a":[1]})"}) {
    EXPECT_EQ(chat_prompt(R"({"messages":[{"role":"user","content":"q"}],)" + more + "}"), plain) << more;
  }
  EXPECT_THAT(chat_prompt(R"({"messages":[{"role":"developer","content":"d"},{"role":"user","content":"q"}]})"),
              HasSubstr("\n\nd<｜User｜>q"));
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_THAT(
      chat_prompt(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"x","reasoning":"R"}])" +
                  tools + "}"),
      HasSubstr("<think>R</think>x"));
  EXPECT_TRUE(chat_prompt(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"x"}],)"
                          R"("continue_final_message":true,"thinking":{"type":"disabled"}})")
                  .ends_with("</think>x"));
}

TEST(ChatBody, StrictToolsKeepWhatTheirReferencesNeed) {
  const std::string definitions = R"("$defs": {"D": {"type": "string", "enum": ["x"]}})";
  EXPECT_THAT(
      chat_prompt(
          R"({"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","strict":true,)"
          R"("parameters":{"$defs":{"D":{"enum":["x"],"title":"T","type":"string"}},"type":"object","title":"F",)"
          R"("properties":{"a":{"$ref":"#/$defs/D"}}}}}]})"),
      HasSubstr(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/D"}}, "additionalProperties": false, )"
                R"("required": ["a"], )" +
                definitions + "}"));
}

TEST(ChatBody, ReadsStructuredOutputs) {
  const auto read = [](const std::string& member) { return chat_request(body_with(member)).value().structured_output; };
  using Kind = ResponseFormat::Kind;
  EXPECT_EQ(read(R"("structured_outputs":{"json_object":false})").kind, Kind::text);
  EXPECT_EQ(read(R"("structured_outputs":{"json_object":true})").kind, Kind::json_object);
  EXPECT_EQ(read(R"("structured_outputs":{"regex":"a+"})").regex, "a+");
  EXPECT_EQ(read(R"("guided_grammar":"root ::= \"a\"")").grammar, "root ::= \"a\"");
  for (const char* schema : {R"({"type":"object"})", R"("{\"type\":\"object\"}")"}) {
    const auto format = read(fmt::format("\"guided_json\":{}", schema));
    EXPECT_EQ(format.kind, Kind::json_schema);
    EXPECT_EQ(compact_json(format.schema), R"({"type":"object"})");
  }
  const auto choice = read(R"("guided_choice":["yes","a \"b\"\\\n"])");
  EXPECT_EQ(choice.kind, Kind::grammar);
  EXPECT_EQ(choice.grammar, R"(root ::= "yes" | "a \"b\"\\\n")");
  // The model is not told.
  EXPECT_EQ(chat_prompt(body_with(R"("guided_regex":"a+")")), chat_prompt(body_with(R"("n":1)")));
}

TEST(ChatBody, ReadsTheMoreUnusualSampling) {
  const auto sampling =
      chat_request(body_with(R"("allowed_token_ids":[3,4],"bad_words":["a"],"prompt_logprobs":2,"priority":-3,)"
                             R"("cache_salt":"s","thinking_token_budget":0,"truncate_prompt_tokens":-1,)"
                             R"("skip_special_tokens":false,"min_p":0.5)"))
          .value()
          .sampling;
  EXPECT_EQ(sampling.allowed_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(sampling.bad_words, std::vector<std::string>{"a"});
  EXPECT_EQ(sampling.prompt_logprobs, 2);
  EXPECT_EQ(sampling.priority, -3);
  EXPECT_EQ(sampling.cache_salt, "s");
  EXPECT_EQ(sampling.thinking_token_budget, 0);
  EXPECT_EQ(sampling.truncate_prompt_tokens, -1);
  EXPECT_FALSE(sampling.skip_special_tokens);
  EXPECT_EQ(sampling.min_p, 0.5);
}

TEST(ChatBody, ForcedCallsComeBehindTheReasoning) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required",)";
  const auto thinking = chat_request(body_with(tools + R"("thinking":true)")).value();
  EXPECT_TRUE(thinking.must_call);
  EXPECT_FALSE(parse_options(thinking).starts_in_tool_calls);
  EXPECT_TRUE(render_prompt(thinking).text().ends_with("<think>"));
  const auto plain = chat_request(body_with(tools + R"("thinking":false)")).value();
  EXPECT_FALSE(plain.must_call);
  EXPECT_TRUE(parse_options(plain).starts_in_tool_calls);
}

TEST(ChatBody, NoGenerationPromptIfNoneIsWanted) {
  EXPECT_TRUE(chat_prompt(body_with(R"("add_generation_prompt":false)")).ends_with("<｜User｜>x"));
}

TEST(ChatBody, NewerLimitWins) {
  const auto request =
      chat_request(R"({"messages":[{"role":"user","content":"q"}],"max_tokens":5,"max_completion_tokens":7})");
  EXPECT_EQ(request.value().sampling.max_tokens, 7);
}

TEST(ResponsesBody, CustomToolsBecomeFunctionsOfOneText) {
  const auto request = responses_request(
      R"({"input":[{"role":"user","content":"q"},{"type":"custom_tool_call","call_id":"1","name":"patch","input":"a\n\"b\""},)"
      R"({"type":"custom_tool_call_output","call_id":"1","output":"done"}],"reasoning":{"effort":"none"},)"
      R"("tools":[{"type":"custom","name":"patch","description":"Edits.","format":{"type":"grammar","syntax":"lark",)"
      R"("definition":"start: X"}}]})");
  const std::string prompt = render_prompt(request.value()).text();
  EXPECT_THAT(prompt, HasSubstr(R"("name": "patch", "description": "Edits.\n\nThe input must follow)"));
  EXPECT_THAT(prompt, HasSubstr("name=\"input\" string=\"true\">a\n\"b\"</"));
  EXPECT_EQ(request->custom_tools, std::vector<std::string>{"patch"});
}

TEST(ResponsesBody, RestoresReasoningFromItsSeal) {
  for (const std::string thought : {"", "t", "é🙂 \n\"x\"", "four", "fives"}) {
    EXPECT_EQ(unseal_reasoning(seal_reasoning(thought)), thought);
    const auto request = responses_request(fmt::format(
        R"({{"input":[{{"role":"user","content":"q"}},{{"type":"reasoning","summary":[],"encrypted_content":"{}"}},)"
        R"({{"role":"assistant","content":"a"}},{{"role":"user","content":"z"}}]}})",
        seal_reasoning(thought)));
    EXPECT_EQ(request.value().messages[1].reasoning.value_or(""), thought);
  }
  for (const char* foreign : {"", "gAAAAABo", "gannet1.?", "gannet1.__8"}) {
    EXPECT_FALSE(unseal_reasoning(foreign)) << foreign;
  }
}

TEST(MessagesBody, ReadsBudgetFormatAndAny) {
  const auto request = messages_request(
      R"({"messages":[{"role":"user","content":"q"}],"thinking":{"type":"enabled","budget_tokens":1024},)"
      R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},)"
      R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->sampling.thinking_token_budget, 1024);
  EXPECT_EQ(request->response_format.kind, ResponseFormat::Kind::json_schema);
  EXPECT_TRUE(request->must_call);
  EXPECT_EQ(request->tool_choice, ToolChoice::automatic);
}

TEST(MessagesBody, HostedToolsAreLeftOut) {
  const auto request = messages_request(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s",)"
      R"("name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},)"
      R"({"type":"text","text":"x"}]},{"role":"user","content":"z"}],"tools":[{"type":"web_search_20250305","name":"web_search"}],)"
      R"("tool_choice":{"type":"tool","name":"web_search"},"thinking":{"type":"disabled"}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(render_prompt(*request).text().ends_with(
      "<｜User｜>q<｜Assistant｜></think>x<｜end▁of▁sentence｜><｜User｜>z<｜Assistant｜></think>"));
}

// One conversation must give one prompt, whichever API brings it.
TEST(Bodies, AllProtocolsGiveTheSamePrompt) {
  const auto chat = chat_request(
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"c",)"
      R"("reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"o"},{"role":"user","content":"z"}],"reasoning_effort":"max",)"
      R"("tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object"}}}]})");
  const auto messages = messages_request(
      R"({"system":"S","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking",)"
      R"("thinking":"r","signature":"s"},{"type":"text","text":"c"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"o"},{"type":"text","text":"z"}]}],)"
      R"("output_config":{"effort":"max"},"tools":[{"name":"f","description":"D","input_schema":{"type":"object"}}]})");
  const auto responses = responses_request(
      R"({"instructions":"S","input":[{"role":"user","content":"q"},{"type":"reasoning","content":[{"type":"reasoning_text",)"
      R"("text":"r"}]},{"role":"assistant","content":"c"},{"type":"function_call","call_id":"1","name":"f","arguments":)"
      R"("{\"a\": 1}"},{"type":"function_call_output","call_id":"1","output":"o"},{"role":"user","content":"z"}],)"
      R"("reasoning":{"effort":"max"},"tools":[{"type":"function","name":"f","description":"D","parameters":{"type":"object"}}]})");
  const std::string expected = render_prompt(chat.value()).text();
  EXPECT_EQ(render_prompt(messages.value()).text(), expected);
  EXPECT_EQ(render_prompt(responses.value()).text(), expected);
}

}  // namespace
}  // namespace gannet::text
