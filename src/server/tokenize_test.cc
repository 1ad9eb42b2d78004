#include "server/tokenize.h"

#include "server/api_test_fixture.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

using TokenizeTest = ApiTest;

TEST_F(TokenizeTest, TokenizesAsCompletionsDo) {
  start();
  const auto response = post("/tokenize", {{"prompt", "Hello <｜User｜>"}, {"return_token_strs", true}});
  const auto ids = *tokenizer().encode("Hello <｜User｜>");
  EXPECT_EQ(response["tokens"], ids);
  EXPECT_EQ(response["count"], ids.size());
  EXPECT_EQ(response["max_model_len"], engine_.context);
  EXPECT_EQ(response["token_strs"].size(), ids.size());
  EXPECT_EQ(response["token_strs"].back(), "<｜User｜>");
  const auto with_begin = post("/tokenize", {{"prompt", "a"}, {"add_special_tokens", true}});
  EXPECT_EQ(with_begin["tokens"][0], engine_.config().bos_token_id);
  EXPECT_TRUE(with_begin["token_strs"].is_null());
}

TEST_F(TokenizeTest, TokenizesConversations) {
  start();
  TestJson body;
  body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
  body["chat_template_kwargs"]["thinking"] = false;
  for (const bool generates : {true, false}) {
    body["add_generation_prompt"] = generates;
    const auto chat = text::chat_request(body.dump());
    EXPECT_EQ(post("/tokenize", body)["tokens"], *text::encode_chat(*chat, tokenizer()));
  }
}

TEST_F(TokenizeTest, DetokenizesBack) {
  start();
  const std::string text = "é🙂 <｜User｜> x";
  const auto tokens = post("/tokenize", {{"prompt", text}})["tokens"];
  EXPECT_EQ(post("/detokenize", {{"tokens", tokens}})["prompt"], text);
  EXPECT_EQ(post("/detokenize", {{"tokens", TestJson::array()}})["prompt"], "");
}

TEST_F(TokenizeTest, TellsOfTheTokenizer) {
  start();
  const auto info = TestJson::parse(connect().request("GET", "/tokenizer_info").body);
  EXPECT_EQ(info["bos_token"], "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(info["eos_token"], "<｜end▁of▁sentence｜>");
  EXPECT_EQ(info["vocab_size"], 576);
}

TEST_F(TokenizeTest, RefusesBadRequests) {
  start();
  const auto expect_refused = [this](const char* path, const TestJson& body, const char* field) {
    EXPECT_THAT(post(path, body, 400)["error"]["message"].get<std::string>(), HasSubstr(field));
  };
  expect_refused("/tokenize", TestJson::object(), "prompt: missing");
  expect_refused("/tokenize", {{"prompt", {"a", "b"}}}, "prompt: 2 prompts");
  expect_refused("/tokenize", {{"messages", 5}}, "messages");
  expect_refused("/tokenize", {{"prompt", "a"}, {"return_token_strs", 1}}, "return_token_strs");
  expect_refused("/detokenize", TestJson::object(), "tokens: missing");
  expect_refused("/detokenize", {{"tokens", {1, 576}}}, "tokens[1]");
  expect_refused("/detokenize", {{"tokens", {-1}}}, "tokens[0]");
  post("/tokenize", {{"prompt", "a"}, {"model", "other"}}, 404);
}

// There is no such thing for this model; clients must learn it at once.
TEST_F(TokenizeTest, EmbeddingsAreNotFound) {
  start();
  EXPECT_THAT(post("/v1/embeddings", {{"input", "a"}}, 404)["error"]["message"].get<std::string>(),
              HasSubstr("/v1/embeddings"));
}

}  // namespace
}  // namespace gannet::server
