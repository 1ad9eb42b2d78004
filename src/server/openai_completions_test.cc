#include "server/openai_completions.h"

#include "server/api_test_fixture.h"

namespace gannet::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPath = "/v1/completions";

class OpenAiCompletionsTest : public ApiTest {
 protected:
  void expect_refused(TestJson body, const std::string& part) {
    const auto response = post(kPath, body, 400);
    EXPECT_THAT(response["error"]["message"].get<std::string>(), HasSubstr(part)) << body;
  }
};

TEST_F(OpenAiCompletionsTest, AnswersWhole) {
  script("there.");
  start();
  const auto response = post(kPath, {{"model", "alias"}, {"prompt", "Hello "}});
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  EXPECT_EQ(response["object"], "text_completion");
  const TestJson expected = {{"index", 0}, {"text", "there."}, {"logprobs", nullptr}, {"finish_reason", "stop"}};
  EXPECT_EQ(response["choices"], TestJson::array({expected}));
  EXPECT_EQ(response["usage"]["prompt_tokens"], tokenizer().encode("Hello ")->size());
  EXPECT_EQ(engine_.seen()[0].prompt, *tokenizer().encode("Hello "));
}

TEST_F(OpenAiCompletionsTest, AnswersWholeWhateverIsReadyAtOnce) {
  engine_.script.assign(3000, tokenizer().encode("x")->front());
  start();
  EXPECT_EQ(post(kPath, {{"prompt", "a"}, {"n", 2}})["choices"][1]["text"], std::string(3000, 'x'));
}

TEST_F(OpenAiCompletionsTest, TakesAllFormsOfPrompts) {
  script("x");
  start();
  EXPECT_EQ(post(kPath, {{"prompt", {"a", "b"}}})["choices"].size(), 2);
  EXPECT_EQ(post(kPath, {{"prompt", {5, 6, 7}}})["choices"].size(), 1);
  EXPECT_THAT(engine_.seen().back().prompt, ElementsAre(5, 6, 7));
  const auto nested = post(kPath, {{"prompt", {{5}, {6, 7}}}, {"n", 2}});
  ASSERT_EQ(nested["choices"].size(), 4);
  EXPECT_EQ(nested["choices"][3]["index"], 3);
  EXPECT_EQ(nested["usage"]["prompt_tokens"], 3);
  EXPECT_THAT(engine_.seen().back().prompt, ElementsAre(6, 7));
  post(kPath, {{"prompt", "<｜User｜>hi"}, {"add_special_tokens", true}});
  EXPECT_EQ(engine_.seen().back().prompt[0], 0);
  EXPECT_EQ(engine_.seen().back().prompt[1], 516);
}

TEST_F(OpenAiCompletionsTest, RefusesBadRequests) {
  script("x");
  start();
  expect_refused(TestJson::object(), "prompt: missing");
  expect_refused({{"prompt", nullptr}}, "prompt: missing");
  expect_refused({{"prompt", ""}}, "prompt: empty");
  expect_refused({{"prompt", TestJson::array()}}, "prompt: an empty list");
  expect_refused({{"prompt", {{"a", 1}}}}, "prompt");
  expect_refused({{"prompt", 5}}, "prompt");
  expect_refused({{"prompt", {"a", 5}}}, "prompt[1]");
  expect_refused({{"prompt", {5, "a"}}}, "prompt[1]");
  expect_refused({{"prompt", {5, -1}}}, "prompt[1]: -1 is not a token id from 0 to 575");
  expect_refused({{"prompt", {5, 576}}}, "prompt[1]: 576 is not a token id");
  expect_refused({{"prompt", {5, 1.5}}}, "prompt[1]");
  expect_refused({{"prompt", {TestJson::array({5}), TestJson::array()}}}, "prompt[1]: empty");
  expect_refused({{"prompt", std::vector<std::string>(129, "a")}}, "129 prompts");
  expect_refused({{"prompt", std::vector<std::string>(100, "a")}, {"n", 2}}, "at most 128");
  expect_refused({{"prompt", "a"}, {"suffix", "b"}}, "suffix");
  expect_refused({{"prompt", "a"}, {"best_of", 3}}, "best_of");
  expect_refused({{"prompt", "a"}, {"logprobs", 50}}, "logprobs");
  expect_refused({{"prompt", "a"}, {"logprobs", true}}, "logprobs");
  expect_refused({{"prompt", "a"}, {"max_tokens", 0}}, "max_tokens");
  expect_refused({{"prompt", "a"}, {"stop", 5}}, "stop");
  EXPECT_TRUE(engine_.seen().empty());
}

TEST_F(OpenAiCompletionsTest, Streams) {
  script("Hello there");
  start();
  const auto events = stream(kPath, {{"prompt", "a"}, {"stream_options", {{"include_usage", true}}}});
  std::string text;
  for (const auto& event : events) {
    EXPECT_EQ(event["object"], "text_completion");
    if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello there");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], engine_.script.size());
}

TEST_F(OpenAiCompletionsTest, StopsAtStopStrings) {
  script("Hello STOP there");
  start();
  const auto response = post(kPath, {{"prompt", "a"}, {"stop", {"STOP"}}});
  EXPECT_EQ(response["choices"][0]["text"], "Hello ");
  EXPECT_EQ(response["choices"][0]["stop_reason"], "STOP");
}

TEST_F(OpenAiCompletionsTest, DoesNotTakeTextForMarkup) {
  const std::string plain = "a </think> <｜DSML｜ calls> b\n\n";
  engine_.script = *tokenizer().encode_plain(plain);
  engine_.script.push_back(1);
  start();
  EXPECT_EQ(post(kPath, {{"prompt", "a"}})["choices"][0]["text"], plain);
}

TEST_F(OpenAiCompletionsTest, EchoesThePrompt) {
  script(" there");
  start();
  const TestJson body = {{"prompt", "Hello"}, {"echo", true}};
  EXPECT_EQ(post(kPath, body)["choices"][0]["text"], "Hello there");
  std::string text;
  for (const auto& event : stream(kPath, body)) text += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, "Hello there");
}

// What lm-eval asks for and reads.
TEST_F(OpenAiCompletionsTest, EchoesThePromptsLogprobs) {
  engine_.with_logprobs = true;
  script("x");
  start();
  TestJson body = {{"prompt", {{5, 6, 7}, {8, 9}}}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}};
  const auto response = post(kPath, body);
  EXPECT_EQ(engine_.seen()[0].sampling.prompt_logprobs, 1);
  ASSERT_EQ(response["choices"].size(), 2);
  const auto& logprobs = response["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 4);
  EXPECT_EQ(logprobs["token_logprobs"], (TestJson{nullptr, -0.25, -0.25, -0.5}));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (size_t i = 1; i < 4; ++i) {
    const std::string token = logprobs["tokens"][i];
    EXPECT_EQ(logprobs["top_logprobs"][i][token], logprobs["token_logprobs"][i]);
  }
  EXPECT_EQ(logprobs["text_offset"], (TestJson{0, 1, 2, 3}));
  EXPECT_EQ(response["choices"][1]["logprobs"]["tokens"].size(), 3);
  EXPECT_FALSE(response["choices"][0].contains("prompt_logprobs"));

  TestJson streamed = {{"tokens", TestJson::array()}, {"token_logprobs", TestJson::array()}};
  body["prompt"] = {5, 6, 7};
  std::string text;
  for (const auto& event : stream(kPath, body)) {
    const auto& choice = event["choices"][0];
    text += choice["text"].get<std::string>();
    for (const char* key : {"tokens", "token_logprobs"}) {
      for (const auto& value : choice["logprobs"][key]) streamed[key].push_back(value);
    }
  }
  EXPECT_EQ(streamed["tokens"], logprobs["tokens"]);
  EXPECT_EQ(streamed["token_logprobs"], logprobs["token_logprobs"]);
  EXPECT_EQ(text, response["choices"][0]["text"]);
}

TEST_F(OpenAiCompletionsTest, ScoresThePromptAlone) {
  engine_.with_logprobs = true;
  script("never seen");
  start();
  TestJson body = {{"prompt", {5, 6, 7}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}, {"min_tokens", 3}};
  const auto response = post(kPath, body);
  EXPECT_EQ(response["choices"][0]["logprobs"]["token_logprobs"].size(), 3);
  EXPECT_EQ(response["choices"][0]["text"], *tokenizer().decode(std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(response["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(response["usage"]["completion_tokens"], 0);
  EXPECT_EQ(engine_.seen()[0].sampling.max_tokens, 1);
  EXPECT_EQ(engine_.seen()[0].sampling.min_tokens, 0);
  size_t streamed = 0;
  for (const auto& event : stream(kPath, body)) streamed += event["choices"][0]["logprobs"]["tokens"].size();
  EXPECT_EQ(streamed, 3);
}

TEST_F(OpenAiCompletionsTest, ReturnsPromptLogprobsAndIds) {
  script("Hi");
  start();
  TestJson body = {{"prompt", {5, 6}}, {"prompt_logprobs", 1}, {"return_token_ids", true}};
  const auto choice = post(kPath, body)["choices"][0];
  EXPECT_EQ(choice["prompt_logprobs"].size(), 2);
  EXPECT_EQ(choice["prompt_logprobs"][1]["6"]["logprob"], -0.25);
  EXPECT_EQ(choice["prompt_token_ids"], (TestJson{5, 6}));
  EXPECT_EQ(choice["token_ids"], engine_.script);
  EXPECT_TRUE(choice["logprobs"].is_null());
}

TEST_F(OpenAiCompletionsTest, RefusesMorePromptLogprobsThanCanBeWritten) {
  script("Hi");
  engine_.context = 50'000;
  start();
  const TestJson prompt = std::vector<int>(40'000, 5);
  expect_refused({{"prompt", prompt}, {"prompt_logprobs", 20}}, "prompt_logprobs: 840000 log-probabilities");
  expect_refused({{"prompt", prompt}, {"prompt_logprobs", 1}, {"n", 10}}, "at most 500000");
  expect_refused({{"prompt", prompt}, {"echo", true}, {"logprobs", 20}}, "prompt_logprobs");
  post(kPath, {{"prompt", prompt}, {"prompt_logprobs", 1}, {"return_token_ids", true}});
}

TEST_F(OpenAiCompletionsTest, AllowedTokensCountOnce) {
  script("x");
  start();
  post(kPath, {{"prompt", "a"}, {"allowed_token_ids", {9, 7, 9, 8, 7}}});
  EXPECT_THAT(engine_.seen().back().sampling.allowed_ids, ElementsAre(7, 8, 9));
}

TEST_F(OpenAiCompletionsTest, ShowsControlTokensIfAsked) {
  script("a<｜User｜>b</think>c");
  start();
  EXPECT_EQ(post(kPath, {{"prompt", "a"}})["choices"][0]["text"], "abc");
  EXPECT_EQ(post(kPath, {{"prompt", "a"}, {"skip_special_tokens", false}})["choices"][0]["text"],
            "a<｜User｜>b</think>c");
}

TEST_F(OpenAiCompletionsTest, NamesBytesThatAreNoText) {
  engine_.with_logprobs = true;
  engine_.script = *tokenizer().encode("🙂");
  start();
  const auto tokens = post(kPath, {{"prompt", "a"}, {"logprobs", 1}})["choices"][0]["logprobs"]["tokens"];
  ASSERT_GT(tokens.size(), 1);
  EXPECT_THAT(tokens[0].get<std::string>(), testing::StartsWith("bytes:\\xf0"));
}

TEST_F(OpenAiCompletionsTest, ReturnsLogprobs) {
  engine_.with_logprobs = true;
  script("Hi");
  start();
  const auto response = post(kPath, {{"prompt", "a"}, {"logprobs", 1}});
  const auto& logprobs = response["choices"][0]["logprobs"];
  const size_t count = engine_.script.size();
  EXPECT_EQ(logprobs["tokens"].size(), count);
  EXPECT_EQ(logprobs["token_logprobs"][0], -0.5);
  EXPECT_EQ(logprobs["top_logprobs"][0][logprobs["tokens"][0].get<std::string>()], -0.5);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["text_offset"].size(), count);
}

}  // namespace
}  // namespace gannet::server
