#include "server/anthropic_messages.h"

#include "server/api_test_fixture.h"
#include "text/chat_encoder.h"
#include "text/protocol/messages_body.h"

namespace gannet::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPath = "/v1/messages";

struct NamedEvent {
  std::string name;
  TestJson data;
};

class AnthropicMessagesTest : public ApiTest {
 protected:
  static TestJson body(bool thinking = false) {
    TestJson json;
    json["model"] = "test-model";
    json["max_tokens"] = 100;
    json["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    json["thinking"]["type"] = thinking ? "adaptive" : "disabled";
    return json;
  }

  static std::vector<NamedEvent> named_events(const std::string& text) {
    std::vector<NamedEvent> events;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find("\n\n", begin);
      const std::string event = text.substr(begin, end - begin);
      begin = end + 2;
      if (event.starts_with(":")) continue;
      EXPECT_TRUE(event.starts_with("event: ")) << event;
      const size_t data = event.find("\ndata: ");
      events.push_back({event.substr(7, data - 7), TestJson::parse(event.substr(data + 7), nullptr, false)});
      EXPECT_EQ(events.back().name, events.back().data["type"]);
    }
    return events;
  }

  std::vector<NamedEvent> stream_messages(TestJson json) {
    json["stream"] = true;
    const auto response = connect().request("POST", kPath, json.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.header("content-type"), "text/event-stream");
    return named_events(response.body);
  }

  static std::vector<std::string> names(const std::vector<NamedEvent>& events) {
    std::vector<std::string> list;
    for (const auto& event : events) list.push_back(event.name);
    return list;
  }
};

TEST_F(AnthropicMessagesTest, AnswersWhole) {
  engine_.cached_tokens = 4;
  script("Hello there");
  start();
  const auto response = post("/v1/messages?beta=true", body());
  const auto prompt = static_cast<int64_t>(engine_.seen()[0].prompt.size());
  TestJson expected = {{"id", response["id"]},
                       {"type", "message"},
                       {"role", "assistant"},
                       {"model", "test-model"},
                       {"content", TestJson::array({{{"type", "text"}, {"text", "Hello there"}}})},
                       {"stop_reason", "end_turn"},
                       {"stop_sequence", nullptr},
                       {"usage",
                        {{"input_tokens", prompt - 4},
                         {"cache_creation_input_tokens", 0},
                         {"cache_read_input_tokens", 4},
                         {"output_tokens", engine_.script.size()},
                         {"service_tier", "standard"}}}};
  EXPECT_EQ(response, expected);
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("msg_"));
}

TEST_F(AnthropicMessagesTest, StreamsThinkingTextAndCalls) {
  script(
      "Hm</think>So:\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
      "string=\"false\">1"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ "
      "calls>");
  start();
  TestJson json = body(true);
  json["tools"] = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}}};
  const auto events = stream_messages(json);
  EXPECT_THAT(names(events),
              ElementsAre("message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_stop", "content_block_start",
                          "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0].data["message"]["content"], TestJson::array());
  EXPECT_EQ(events[3].data["delta"]["thinking"], "Hm");
  EXPECT_FALSE(events[4].data["delta"]["signature"].get<std::string>().empty());
  EXPECT_EQ(events[9].data["index"], 2);
  EXPECT_EQ(events[9].data["content_block"]["type"], "tool_use");
  EXPECT_EQ(events[9].data["content_block"]["input"], TestJson::object());
  EXPECT_EQ(events[10].data["delta"]["partial_json"], R"({"a": 1})");
  EXPECT_NE(events[9].data["content_block"]["id"], events[12].data["content_block"]["id"]);
  EXPECT_EQ(events[15].data["delta"]["stop_reason"], "tool_use");

  const auto whole = post(kPath, json);
  ASSERT_EQ(whole["content"].size(), 4);
  EXPECT_EQ(whole["content"][0]["thinking"], "Hm");
  EXPECT_EQ(whole["content"][2]["input"], (TestJson{{"a", 1}}));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
}

TEST_F(AnthropicMessagesTest, NamesWhyItStopped) {
  script("one END two");
  start();
  TestJson json = body();
  json["stop_sequences"] = {"END"};
  auto response = post(kPath, json);
  EXPECT_EQ(response["stop_reason"], "stop_sequence");
  EXPECT_EQ(response["stop_sequence"], "END");
  EXPECT_EQ(response["content"][0]["text"], "one ");
  json = body();
  json["max_tokens"] = 1;
  response = post(kPath, json);
  EXPECT_EQ(response["stop_reason"], "max_tokens");
  EXPECT_EQ(stream_messages(json).end()[-2].data["delta"]["stop_reason"], "max_tokens");
}

TEST_F(AnthropicMessagesTest, TellsThatItBeganBeforeTheFirstToken) {
  engine_.by_steps = true;
  script("Hi");
  HttpServerOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  TestJson json = body();
  json["stream"] = true;
  auto client = connect();
  client.send(TestConnection::request_text("POST", kPath, json.dump()));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_THAT(*client.read_chunk(), testing::StartsWith("event: message_start\n"));
  EXPECT_EQ(*client.read_chunk(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  engine_.step(engine_.script.size());
  EXPECT_TRUE(client.read_through("event: message_stop\n"));
}

// Nothing but events may come, and message_start first: it does not wait for an engine that is busy.
TEST_F(AnthropicMessagesTest, KeepsAConnectionWithEventsWhileItWaits) {
  engine_.by_steps = true;
  engine_.queued = true;
  script("Hi");
  HttpServerOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  TestJson json = body();
  json["stream"] = true;
  auto client = connect();
  client.send(TestConnection::request_text("POST", kPath, json.dump()));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_THAT(*client.read_chunk(), testing::StartsWith("event: message_start\n"));
  EXPECT_EQ(*client.read_chunk(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  engine_.step(engine_.script.size());
  const auto rest = client.read_through("event: message_stop\n");
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->find("message_start"), std::string::npos);
}

TEST_F(AnthropicMessagesTest, HidesReasoningIfAsked) {
  script("Hm</think>Yes");
  start();
  TestJson json = body(true);
  json["include_reasoning"] = false;
  EXPECT_EQ(post(kPath, json)["content"].size(), 1);
  for (const auto& event : stream_messages(json)) EXPECT_EQ(event.data.dump().find("Hm"), std::string::npos);
}

// The engine has more ready than one look takes, and nothing of it shows.
TEST_F(AnthropicMessagesTest, GoesOnBehindMuchHiddenReasoning) {
  script("</think>Yes");
  engine_.script.insert(engine_.script.begin(), 5000, tokenizer().encode("x")->front());
  engine_.context = 10'000;
  HttpServerOptions options;
  options.keep_alive_interval = std::chrono::hours(1);
  start(options);
  TestJson json = body(true);
  json["max_tokens"] = 9000;
  json["include_reasoning"] = false;
  EXPECT_EQ(stream_messages(json).back().name, "message_stop");
}

TEST_F(AnthropicMessagesTest, CountsTokens) {
  start();
  TestJson json = body(true);
  json.erase("max_tokens");
  const auto chat = text::messages_request(json.dump());
  EXPECT_EQ(post("/v1/messages/count_tokens", json),
            (TestJson{{"input_tokens", text::encode_chat(*chat, tokenizer())->size()}}));
  EXPECT_TRUE(engine_.seen().empty());
  EXPECT_EQ(post("/v1/messages/count_tokens", TestJson::object(), 400)["type"], "error");
}

TEST_F(AnthropicMessagesTest, ErrorsHaveAnthropicsBody) {
  script("x");
  engine_.context = 40;
  start();
  const auto expect_error = [this](const TestJson& json, int status, const char* type, const char* message) {
    const auto response = post(kPath, json, status);
    EXPECT_EQ(response["type"], "error");
    EXPECT_EQ(response["error"]["type"], type);
    EXPECT_THAT(response["error"]["message"].get<std::string>(), HasSubstr(message));
  };
  expect_error(TestJson::object(), 400, "invalid_request_error", "messages");
  TestJson json = body();
  json["model"] = "other";
  expect_error(json, 404, "not_found_error", "`other` does not exist");
  json = body();
  json["messages"][0]["content"] = std::string(300, 'x');
  expect_error(json, 400, "invalid_request_error", "prompt is too long: ");
  expect_error(json, 400, "invalid_request_error", " tokens > 40 maximum");
  json = body();
  json["n"] = 2;
  expect_error(json, 400, "invalid_request_error", "n: 2");
}

TEST_F(AnthropicMessagesTest, OverloadIs529) {
  engine_.by_steps = true;
  script("x");
  model_.max_unfinished = 0;
  start();
  const auto response = connect().request("POST", kPath, body().dump());
  EXPECT_EQ(response.status, 529);
  EXPECT_EQ(response.header("retry-after"), "1");
  EXPECT_EQ(TestJson::parse(response.body)["error"]["type"], "overloaded_error");
}

TEST_F(AnthropicMessagesTest, FailuresEndTheStreamWithAnError) {
  script("Hello", false);
  engine_.failure = Error{ErrorKind::failed, "the engine broke"};
  start();
  const auto events = stream_messages(body());
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "api_error");
  EXPECT_EQ(events.back().data["error"]["message"], "the engine broke");
  EXPECT_EQ(post(kPath, body(), 500)["error"]["message"], "the engine broke");
}

TEST_F(AnthropicMessagesTest, BudgetEndsTheReasoning) {
  script("one two three four</think>Yes");
  start();
  TestJson json = body();
  json["thinking"] = {{"type", "enabled"}, {"budget_tokens", 2}};
  const auto response = post(kPath, json);
  const auto& script = engine_.script;
  EXPECT_EQ(response["content"][0]["thinking"], *tokenizer().decode(std::span(script).subspan(0, 2)));
}

TEST(AnthropicErrors, HaveATypeForEveryStatus) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                                               {403, "permission_error"},      {404, "not_found_error"},
                                               {405, "invalid_request_error"}, {413, "request_too_large"},
                                               {429, "rate_limit_error"},      {500, "api_error"},
                                               {503, "overloaded_error"},      {504, "timeout_error"}};
  for (const auto& [status, type] : types) {
    ApiError error;
    error.status = status;
    error.message = "m";
    const auto response = error_for("/v1/messages/count_tokens", error, "req_1");
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(TestJson::parse(response.body),
              (TestJson{{"type", "error"}, {"error", {{"type", type}, {"message", "m"}}}, {"request_id", "req_1"}}));
  }
  EXPECT_THAT(error_for("/v1/chat/completions", bad_request("m")).body, HasSubstr("\"param\""));
}

}  // namespace
}  // namespace gannet::server
