#include "server/answer_memory.h"

#include <gtest/gtest.h>

#include "server/api_test_fixture.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

AnswerMemory::Turn turn_of(const std::string& id, const std::string& arguments, size_t tokens = 3) {
  AnswerMemory::Turn turn;
  turn.sampled.thinking = true;
  turn.sampled.ids.assign(tokens, 7);
  turn.reasoning = "why";
  turn.content = "Calling.";
  turn.calls = {{id, "f", arguments}};
  return turn;
}

text::ChatRequest history(const std::string& id, const std::string& arguments) {
  text::ChatRequest chat;
  chat.tools = {{.name = "f", .description = {}, .parameters = {}}};
  text::Message message;
  message.role = text::Role::assistant;
  message.content = "Calling.";
  message.reasoning = "why";
  message.tool_calls = {{id, "f", arguments}};
  chat.messages.push_back(message);
  return chat;
}

TEST(AnswerMemory, ComparesJsonValues) {
  EXPECT_TRUE(same_json(R"({"a": 1, "b": [true, null, "x"]})", R"({"b":[true,null,"x"],"a":1.0})"));
  EXPECT_TRUE(same_json(R"({"a": 1e2})", R"({"a":100})"));
  EXPECT_TRUE(same_json(R"("\u00e9")", R"("é")"));
  EXPECT_TRUE(same_json("no json", "no json"));
  EXPECT_FALSE(same_json("no json", "no  json"));
  EXPECT_FALSE(same_json(R"({"a":1})", R"({"a":1,"b":2})"));
  EXPECT_FALSE(same_json(R"({"a":1})", R"({"b":1})"));
  EXPECT_FALSE(same_json(R"({"a":1})", R"({"a":"1"})"));
  EXPECT_FALSE(same_json(R"([1,2])", R"([2,1])"));
  EXPECT_FALSE(same_json(R"([9007199254740993])", R"([9007199254740992])"));
  EXPECT_FALSE(same_json("true", "1"));
}

TEST(AnswerMemory, SplicesWhatComesBackUnchanged) {
  AnswerMemory memory;
  memory.remember(turn_of("c1", R"({"a": 1})"));
  auto chat = history("c1", R"({"a":1})");
  EXPECT_EQ(memory.splice(chat).spliced, 1);
  ASSERT_NE(chat.messages[0].sampled, nullptr);
  EXPECT_EQ(chat.messages[0].sampled->ids, (std::vector<int32_t>{7, 7, 7}));

  const auto expect_spliced = [&memory](const auto& change, bool spliced) {
    auto changed = history("c1", R"({"a":1})");
    change(changed.messages[0], changed);
    const auto replays = memory.splice(changed);
    EXPECT_EQ(replays.spliced, spliced ? 1 : 0);
    EXPECT_EQ(replays.mismatched, spliced ? 0 : 1);
    EXPECT_EQ(changed.messages[0].sampled != nullptr, spliced);
  };
  expect_spliced([](auto& message, auto&) { message.content = "Calling.\n"; }, true);
  expect_spliced([](auto& message, auto&) { message.reasoning.reset(); }, true);
  expect_spliced([](auto& message, auto&) { message.reasoning = ""; }, true);
  expect_spliced([](auto& message, auto&) { message.content = "Other."; }, false);
  expect_spliced([](auto& message, auto&) { message.reasoning = "because"; }, false);
  expect_spliced([](auto& message, auto&) { message.tool_calls[0].arguments = R"({"a":2})"; }, false);
  expect_spliced([](auto& message, auto&) { message.tool_calls[0].name = "g"; }, false);
  expect_spliced([](auto& message, auto&) { message.tool_calls.push_back({"c2", "f", "{}"}); }, false);
  // The header before the message would be another one.
  expect_spliced([](auto&, auto& request) { request.thinking = false; }, false);
  expect_spliced([](auto&, auto& request) { request.tools.clear(); }, false);
}

TEST(AnswerMemory, CountsOnlyWhatItIsTold) {
  AnswerMemory memory;
  auto unknown = history("other", "{}");
  const auto replays = memory.splice(unknown);
  EXPECT_EQ(replays.unknown, 1);
  EXPECT_EQ(memory.counts().replays.unknown, 0);
  memory.count(replays);
  EXPECT_EQ(memory.counts().replays.unknown, 1);
}

TEST(AnswerMemory, ForgetsTheLeastUsedWhenItIsFull) {
  AnswerMemory memory(16'000);  // three of these
  const auto known = [&memory](const std::string& id) {
    auto chat = history(id, "{}");
    return memory.splice(chat).spliced == 1;
  };
  for (const char* id : {"a", "b", "c"}) memory.remember(turn_of(id, "{}", 1000));
  EXPECT_TRUE(known("a"));
  memory.remember(turn_of("d", "{}", 1000));
  EXPECT_TRUE(known("a"));
  EXPECT_FALSE(known("b"));
  EXPECT_TRUE(known("d"));
  EXPECT_LE(memory.counts().bytes, 16'000);
  EXPECT_EQ(memory.counts().turns, 3);
  memory.remember(turn_of("huge", "{}", 100'000));
  EXPECT_FALSE(known("huge"));
  EXPECT_TRUE(known("a"));
}

// An answer whose tokens are not those that its own text would get.
class ReplayTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    const std::string text =
        "see</think>Calling.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get\">\n<｜DSML｜ parameter name=\"city\" "
        "string=\"true\">Oslo</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"n\" string=\"false\">3"
        "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
    // Character by character, which no encoder does.
    for (size_t position = 0; position < text.size();) {
      size_t length = 1;
      for (const std::string_view control : {"</think>", "｜DSML｜"}) {
        if (std::string_view(text).substr(position).starts_with(control)) length = control.size();
      }
      const auto ids = *tokenizer().encode(text.substr(position, length));
      sampled_.insert(sampled_.end(), ids.begin(), ids.end());
      position += length;
    }
    engine_.script = sampled_;
    engine_.script.push_back(engine_.config().eos_token_id);
  }

  // The second prompt must begin with the first one and what was generated, id for id.
  void expect_replayed() {
    const auto seen = engine_.seen();
    ASSERT_EQ(seen.size(), 2);
    std::vector<int32_t> expected = seen[0].prompt;
    expected.insert(expected.end(), sampled_.begin(), sampled_.end());
    expected.push_back(engine_.config().eos_token_id);
    ASSERT_GT(seen[1].prompt.size(), expected.size());
    EXPECT_EQ(std::vector<int32_t>(seen[1].prompt.begin(), seen[1].prompt.begin() + static_cast<int>(expected.size())),
              expected);
    EXPECT_EQ(model_.memory->counts().replays.spliced, 1);
    EXPECT_EQ(model_.memory->counts().replays.mismatched, 0);
  }

  std::vector<int32_t> sampled_;
};

TEST_F(ReplayTest, ChatCompletions) {
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}}}}};
  auto message = post("/v1/chat/completions", body)["choices"][0]["message"];
  message.erase("reasoning_content");  // many clients lose it
  message["tool_calls"][0]["function"]["arguments"] = R"({"n":3,"city":"Oslo"})";
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "ok"}});
  post("/v1/chat/completions", body);
  expect_replayed();
}

TEST_F(ReplayTest, ChatCompletionsStreamed) {
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}}}}};
  TestJson call;
  for (const auto& event : stream("/v1/chat/completions", body)) {
    const auto& delta = event["choices"][0]["delta"];
    if (delta.contains("tool_calls") && delta["tool_calls"][0].contains("id")) call = delta["tool_calls"][0];
    if (delta.contains("tool_calls")) call["function"]["arguments"] = delta["tool_calls"][0]["function"]["arguments"];
  }
  body["messages"].push_back({{"role", "assistant"}, {"content", "Calling."}, {"tool_calls", {call}}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "ok"}});
  post("/v1/chat/completions", body);
  expect_replayed();
}

TEST_F(ReplayTest, Messages) {
  start();
  TestJson body;
  body["max_tokens"] = 1000;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"name", "get"}, {"input_schema", {{"type", "object"}}}}};
  const auto content = post("/v1/messages", body)["content"];
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  TestJson result = {{"type", "tool_result"}, {"tool_use_id", content[2]["id"]}, {"content", "ok"}};
  body["messages"].push_back({{"role", "user"}, {"content", TestJson::array({result})}});
  post("/v1/messages", body);
  expect_replayed();
}

TEST_F(ReplayTest, Responses) {
  start();
  TestJson body;
  body["input"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"name", "get"}}};
  const auto output = post("/v1/responses", body)["output"];
  for (const auto& item : output) body["input"].push_back(item);
  body["input"].push_back({{"type", "function_call_output"}, {"call_id", output[2]["call_id"]}, {"output", "ok"}});
  post("/v1/responses", body);
  expect_replayed();
}

TEST_F(ReplayTest, ForcedCallsBeginBehindTheirOpening) {
  const std::string text = "<｜DSML｜ invoke name=\"get\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  script(text);
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}}}}};
  body["tool_choice"] = "required";
  body["thinking"] = false;
  const auto message = post("/v1/chat/completions", body)["choices"][0]["message"];
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "ok"}});
  body["tool_choice"] = "auto";
  sampled_ = engine_.script;
  sampled_.pop_back();
  post("/v1/chat/completions", body);
  expect_replayed();
}

TEST_F(ReplayTest, ChangedArgumentsAreRenderedAsTheyCome) {
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}}}}};
  auto message = post("/v1/chat/completions", body)["choices"][0]["message"];
  message["tool_calls"][0]["function"]["arguments"] = R"({"city":"Rome"})";
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "ok"}});
  post("/v1/chat/completions", body);
  const auto chat = text::chat_request(body.dump());
  EXPECT_EQ(engine_.seen()[1].prompt, *text::encode_chat(*chat, tokenizer()));
  EXPECT_EQ(model_.memory->counts().replays.spliced, 0);
  EXPECT_EQ(model_.memory->counts().replays.mismatched, 1);
}

TEST_F(ReplayTest, AnswersThatWereCutOffAreNotKept) {
  engine_.script.resize(engine_.script.size() - 3);
  engine_.finish = gannet::FinishReason::length;
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}}}}};
  post("/v1/chat/completions", body);
  EXPECT_EQ(model_.memory->counts().turns, 0);
}

}  // namespace
}  // namespace gannet::server
