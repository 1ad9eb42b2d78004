#include <fstream>
#include <sstream>

#include "server/api_test_fixture.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/messages_body.h"
#include "text/protocol/responses_body.h"

// What real agents send (tests/data/clients/README.md), over HTTP, and one conversation through all APIs.

namespace gannet::server {
namespace {

TestJson recording(const std::string& name) {
  std::ifstream file(std::string(GANNET_TEST_DATA) + "/clients/" + name);
  std::ostringstream content;
  content << file.rdbuf();
  return TestJson::parse(content.str());
}

class ClientsTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    model_.names = {"m"};
    engine_.context = 1 << 20;
    script("Thinking.</think>Done.");
  }

  TestResponse send(const std::string& name, bool stream = true) {
    TestJson request = recording(name);
    if (request["body"].is_object() && !stream) request["body"]["stream"] = false;
    std::string headers;
    for (const auto& [header, value] : request["headers"].items()) {
      headers += header + ": " + value.get<std::string>() + "\r\n";
    }
    const std::string body = request["body"].is_null() ? "" : request["body"].dump();
    return connect().request(request["method"], request["path"], body, headers);
  }

  // Prompt tokens of the recording as the text layer makes them.
  template <class Read>
  static std::vector<int32_t> prompt_of(const std::string& name, Read read) {
    return *text::encode_chat(*read(recording(name)["body"].dump(), text::ConversionOptions{}), tokenizer());
  }
};

TEST_F(ClientsTest, ClaudeCode) {
  start();
  EXPECT_EQ(send("claude-1.json").status, 200);
  EXPECT_EQ(connect().request("HEAD", "/v1").status, 404);  // which is as good to Claude Code
  for (const char* name : {"claude-2.json", "claude-3.json"}) {
    const auto response = send(name);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.body, testing::HasSubstr("event: message_stop"));
    EXPECT_EQ(engine_.seen().back().prompt, prompt_of(name, text::messages_request));
    EXPECT_EQ(TestJson::parse(send(name, false).body)["content"][1]["text"], "Done.");
  }
}

TEST_F(ClientsTest, Codex) {
  start();
  for (const char* name : {"codex-1.json", "codex-2.json"}) {
    const auto response = send(name);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.body, testing::HasSubstr("event: response.completed"));
    EXPECT_THAT(response.body, testing::HasSubstr("\"encrypted_content\":\"gannet1."));
    const auto read = [](const std::string& body, const text::ConversionOptions& options) {
      return text::responses_request(body, options);
    };
    EXPECT_EQ(engine_.seen().back().prompt, prompt_of(name, read));
    EXPECT_EQ(TestJson::parse(send(name, false).body)["output"][1]["content"][0]["text"], "Done.");
  }
}

TEST_F(ClientsTest, Opencode) {
  start();
  for (const char* name : {"opencode-1.json", "opencode-2.json", "opencode-3.json"}) {
    const auto response = send(name);
    EXPECT_EQ(response.status, 200) << response.body;
    const auto chunks = events(response.body);
    EXPECT_GT(chunks.back()["usage"]["prompt_tokens"], 0);
    EXPECT_EQ(engine_.seen().back().prompt, prompt_of(name, text::chat_request));
    EXPECT_EQ(TestJson::parse(send(name, false).body)["choices"][0]["message"]["content"], "Done.");
  }
}

TEST_F(ClientsTest, WithoutALimitAnAnswerHasTheRestOfTheContext) {
  start();
  const TestJson user = {{{"role", "user"}, {"content", "q"}}};
  const std::pair<const char*, TestJson> bodies[] = {{"/v1/chat/completions", {{"messages", user}}},
                                                     {"/v1/completions", {{"prompt", "q"}}},
                                                     {"/v1/responses", {{"input", "q"}}},
                                                     {"/v1/messages", {{"messages", user}}}};
  for (const auto& [path, body] : bodies) {
    post(path, body);
    const auto seen = engine_.seen().back();
    EXPECT_EQ(seen.sampling.max_tokens, engine_.context - static_cast<int64_t>(seen.prompt.size())) << path;
  }
}

TEST_F(ClientsTest, OneConversationIsOnePromptInAllApis) {
  engine_.cached_tokens = 3;
  start();
  const TestJson schema = {{"type", "object"}};
  TestJson chat;
  chat["messages"] = {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "q"}}};
  chat["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}};
  const auto chat_usage = post("/v1/chat/completions", chat)["usage"];
  TestJson messages;
  messages["system"] = "S";
  messages["messages"] = {{{"role", "user"}, {"content", "q"}}};
  messages["tools"] = {{{"name", "f"}, {"input_schema", schema}}};
  const auto messages_usage = post("/v1/messages", messages)["usage"];
  TestJson responses;
  responses["instructions"] = "S";
  responses["input"] = "q";
  responses["tools"] = {{{"type", "function"}, {"name", "f"}, {"parameters", schema}}};
  const auto responses_usage = post("/v1/responses", responses)["usage"];
  const auto tokens = post("/tokenize", chat);

  const auto seen = engine_.seen();
  ASSERT_EQ(seen.size(), 3);
  EXPECT_EQ(seen[1].prompt, seen[0].prompt);
  EXPECT_EQ(seen[2].prompt, seen[0].prompt);
  EXPECT_EQ(tokens["tokens"], seen[0].prompt.values());
  const auto length = static_cast<int64_t>(seen[0].prompt.size());
  EXPECT_EQ(chat_usage["prompt_tokens"], length);
  EXPECT_EQ(chat_usage["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(chat_usage["prompt_cache_hit_tokens"], 3);
  EXPECT_EQ(chat_usage["prompt_cache_miss_tokens"], length - 3);
  EXPECT_EQ(messages_usage["input_tokens"], length - 3);
  EXPECT_EQ(messages_usage["cache_read_input_tokens"], 3);
  EXPECT_EQ(responses_usage["input_tokens"], length);
  EXPECT_EQ(responses_usage["input_tokens_details"]["cached_tokens"], 3);
}

}  // namespace
}  // namespace gannet::server
