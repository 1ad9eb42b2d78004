#include "text/chat_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/protocol/chat_body.h"
#include "text/protocol/core_body.h"
#include "text/test_data.h"

namespace gannet::text {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAddTool =
    R"({"name":"add","description":"Add two numbers","parameters":{"type":"object","properties":{"a":{"type":"number"},)"
    R"("b":{"type":"number"}},"required":["a","b"]}})";

struct Example {
  int number;
  std::string conversation;
  size_t n;
  const char* hash;
};

// The worked examples of the checkpoint's own encoder (spec: text, section 1.6).
std::vector<Example> worked_examples() {
  const std::string ping = R"({"role":"user","content":"ping"})";
  const std::string pong = R"({"role":"assistant","content":"pong"})";
  const std::string thought = R"({"role":"assistant","content":"pong","reasoning_content":"r-one"})";
  const std::string french = R"({"role":"system","content":"Answer in French."})";
  const auto chat = [](const std::string& messages, const std::string& more = "") {
    return R"({"thinking_mode":false,"messages":[)" + messages + "]" + more + "}";
  };
  const auto think = [](const std::string& messages, const std::string& more = "") {
    return R"({"thinking_mode":true,"messages":[)" + messages + "]" + more + "}";
  };
  const std::string sum =
      R"({"role":"user","content":"sum"},{"role":"assistant","content":"","tool_calls":[)"
      R"({"id":"p","name":"add","arguments":"{\"a\": 1, \"b\": 2.50}"},)"
      R"({"id":"q","name":"add","arguments":"{\"a\": \"x\", \"b\": null}"}]},)"
      R"({"role":"tool","tool_call_id":"q","content":"err"},{"role":"tool","tool_call_id":"p","content":"3"},)"
      R"({"role":"user","content":"thanks"})";
  const std::string now =
      R"({"role":"user","content":"x"},{"role":"assistant","content":"ok","tool_calls":[{"id":"1","name":"now",)"
      R"("arguments":"{}"}]},{"role":"tool","tool_call_id":"1","content":"12:00"})";
  const std::string added =
      R"({"role":"user","content":"1+2"},{"role":"assistant","content":"","reasoning_content":"use add","tool_calls":[)"
      R"({"id":"1","name":"add","arguments":"{\"a\":1,\"b\":2}"}]},{"role":"tool","tool_call_id":"1","content":"3"},)"
      R"({"role":"assistant","content":"3.","reasoning_content":"done"},{"role":"user","content":"2+2"})";
  return {
      {1, chat(ping), 5, "6c5b8bb1258e5943"},
      {2, chat(french + "," + ping), 10, "8b2135eb65792cea"},
      {3, think(ping), 31, "a73c35670027886b"},
      {4, think(french + "," + ping, R"(,"reasoning_effort":"low")"), 35, "ba687c258d03dd5c"},
      {5, chat(ping + "," + pong + R"(,{"role":"user","content":"again"})"), 12, "ba81bbd75eb4485d"},
      {6, think(ping + "," + thought + R"(,{"role":"user","content":"again"})", R"(,"reasoning_effort":"max")"), 38,
       "46cb8005fdadb930"},
      {7, think(ping + "," + thought), 37, "54272f23a44ecb9d"},
      {8, chat(ping + "," + pong + R"(,{"role":"system","content":"Be rude."})"), 14, "c89cc4edc90f5c05"},
      {9, chat(R"({"role":"user","content":"first"},{"role":"user","content":"second"})"), 7, "9294c0bd46d540f2"},
      {10,
       chat(R"({"role":"system","content":"Reply in JSON."},{"role":"user","content":"go"})",
            R"(,"response_format":"json_object")"),
       32, "02a2993d6af07729"},
      {11, think(sum), 151, "ac77fd3cdf254176"},
      {12, chat(R"({"role":"latest_reminder","content":"2026-11-29"},{"role":"user","content":"hi"})"), 12,
       "e01b6b3328b935f3"},
      {13, chat(ping + R"(,{"role":"assistant","content":"po","prefix":true})"), 6, "e2b8d845d9e60fca"},
      {14, chat(ping + R"(,{"role":"assistant","content":"pong","task":"title"})"), 9, "a7c761c48427073d"},
      {15, chat(now), 41, "cbb4ce63a5427900"},
      {16, think(added, std::string(R"(,"tools":[)") + kAddTool + "]"), 378, "5ec0590cbbacf21d"},
  };
}

TEST(ChatEncoder, WorkedExamplesOfTheCheckpointTemplate) {
  for (const Example& example : worked_examples()) {
    SCOPED_TRACE(example.number);
    const auto request = core_request(example.conversation).value();
    const auto ids = encode_chat(request, test_data::released_tokenizer(), ChatTemplate::checkpoint).value();
    EXPECT_EQ(ids.size(), example.n);
    EXPECT_EQ(test_data::short_hash(ids), example.hash) << render_prompt(request, ChatTemplate::checkpoint).text();
  }
}

TEST(ChatEncoder, CheckpointTemplateTakesAnyEffort) {
  const auto request = chat_request(R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":42})").value();
  EXPECT_THAT(render_prompt(request, ChatTemplate::checkpoint).text(), HasSubstr("Reasoning Effort: 42 "));
  const auto fraction =
      chat_request(R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":0.125})").value();
  EXPECT_EQ(fraction.effort, 12);
}

TEST(ChatEncoder, TasksOfTheCheckpointTemplate) {
  const auto rendered = [](const std::string& conversation) {
    return render_prompt(core_request(conversation).value(), ChatTemplate::checkpoint).text();
  };
  EXPECT_TRUE(rendered(R"({"thinking_mode":true,"messages":[{"role":"user","content":"x","task":"action"}]})")
                  .ends_with("<｜User｜>x<｜Assistant｜><think><｜action｜>"));
  EXPECT_TRUE(rendered(R"({"thinking_mode":false,"messages":[{"role":"user","content":"x","task":"title"}]})")
                  .ends_with("<｜User｜>x<｜title｜>"));
}

TEST(ChatEncoder, SaysWhichControlTokenIsMissing) {
  RenderedPrompt prompt;
  prompt.segments = {{"<｜no such token｜>", true}};
  const auto ids = encode_prompt(prompt, test_data::small_tokenizer());
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("<｜no such token｜>"));
}

TEST(ChatEncoder, UserTextNeverBecomesAControlToken) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  std::string spellings;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_added(id)) spellings += tokenizer.token_text(id);
  }
  const std::string quoted = json_quote(spellings);
  const auto request = chat_request(R"({"messages":[{"role":"system","content":)" + quoted +
                                    R"(},{"role":"user","content":)" + quoted + R"(}],"thinking":{"type":"disabled"}})")
                           .value();
  const auto ids = encode_chat(request, tokenizer).value();
  int added = 0;
  for (const int32_t id : ids) added += tokenizer.is_added(id) ? 1 : 0;
  EXPECT_EQ(added, 5);  // begin, system, user, assistant, end of thinking
}

// What a model answers with an assistant message's own rendering, the parser must read back as that message.
class RoundTrip : public ::testing::Test {
 protected:
  std::string text() {
    static const std::vector<std::string> kParts = {"a",   " ",  "\n",  "\n\n", "日本",  "\U0001F642",
                                                    "<",   "</", "<｜", "{}",   "\"q\"", "\\",
                                                    "<b>", "\t", "x y", "｜",   ">",     "null"};
    std::string out;
    for (int count = static_cast<int>(random_() % 6); count > 0; --count) out += kParts[random_() % kParts.size()];
    return out;
  }

  Json value(int depth) {
    switch (random_() % (depth > 2 ? 5 : 7)) {
      case 0:
        return Json(text());
      case 1:
        return Json(static_cast<int64_t>(random_()) - 1000);
      case 2:
        return Json(static_cast<double>(random_() % 1000) / 8);
      case 3:
        return Json(random_() % 2 == 0);
      case 4:
        return {};
      case 5: {
        Json::Array list;
        for (size_t count = random_() % 3; count > 0; --count) list.push_back(value(depth + 1));
        return Json(std::move(list));
      }
      default:
        return Json(object(depth + 1));
    }
  }

  Json::Object object(int depth) {
    static const std::vector<std::string> kKeys = {"a", "b c", "名", "", "q\"", "x.y", "<k>"};
    Json::Object members;
    for (const std::string& key : kKeys) {
      if (random_() % 3 == 0) members.emplace_back(key, value(depth));
    }
    return members;
  }

  std::mt19937 random_{5};  // NOLINT(cert-msc51-cpp): repeatable on purpose
};

TEST_F(RoundTrip, ParsingARenderedMessageGivesItBack) {
  const Tokenizer& tokenizer = test_data::released_tokenizer();
  for (int round = 0; round < 300; ++round) {
    ChatRequest request;
    request.messages.resize(2);
    request.messages[0].content = "q";
    request.tools.push_back({"f", {}, Json(Json::Object()), false, false});
    request.thinking = random_() % 2 == 0;
    Message& answer = request.messages[1];
    answer.role = Role::assistant;
    if (request.thinking) answer.reasoning = text();
    answer.content = text();
    for (size_t count = random_() % 3; count > 0; --count) {
      answer.tool_calls.push_back({fmt::format("c{}", count), "f", python_json(Json(object(0)))});
    }
    ChatRequest question = request;
    question.messages.pop_back();
    const auto prefix = encode_chat(question, tokenizer).value();
    const auto whole = encode_chat(request, tokenizer).value();
    ASSERT_TRUE(std::equal(prefix.begin(), prefix.end(), whole.begin()));
    TokenMessageParser parser(tokenizer, parse_options(question));
    const int32_t end = tokenizer.token_id("<｜end▁of▁sentence｜>").value();
    for (size_t index = prefix.size(); whole[index] != end; ++index) parser.push(whole[index]);
    parser.finish(StopCause::stop);
    const ParsedMessage& message = parser.message();
    ASSERT_EQ(message.reasoning, answer.reasoning.value_or(""));
    ASSERT_EQ(message.content, answer.content);
    ASSERT_EQ(message.tool_calls.size(), answer.tool_calls.size());
    for (size_t index = 0; index < message.tool_calls.size(); ++index) {
      ASSERT_EQ(message.tool_calls[index].name, answer.tool_calls[index].name);
      ASSERT_EQ(message.tool_calls[index].arguments, answer.tool_calls[index].arguments);
    }
  }
}

}  // namespace
}  // namespace gannet::text
