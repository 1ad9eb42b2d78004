#include "server/openai_chat.h"

#include "base/log_context.h"
#include "server/api_test_fixture.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kPath = "/v1/chat/completions";

class OpenAiChatTest : public ApiTest {
 protected:
  static TestJson body(bool thinking = false) {
    TestJson json;
    json["model"] = "test-model";
    json["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    json["thinking"]["type"] = thinking ? "enabled" : "disabled";
    return json;
  }
  static TestJson body_with_tools() {
    TestJson json = body(true);
    json["tools"] = {{{"type", "function"}, {"function", {{"name", "get"}, {"parameters", {{"type", "object"}}}}}}};
    return json;
  }
  static std::string tool_call_script() {
    return "let me see</think>Calling.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get\">\n"
           "<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo \"x\"</｜DSML｜ parameter>\n"
           "<｜DSML｜ parameter name=\"n\" string=\"false\">3</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
           "<｜DSML｜ invoke name=\"get\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  }

  // Joined deltas of one field.
  static std::string joined(const std::vector<TestJson>& events, const std::string& field, int index = 0) {
    std::string text;
    for (const auto& event : events) {
      for (const auto& choice : event.value("choices", TestJson::array())) {
        if (choice["index"] == index && choice["delta"].contains(field) && choice["delta"][field].is_string()) {
          text += choice["delta"][field].get<std::string>();
        }
      }
    }
    return text;
  }
};

TEST_F(OpenAiChatTest, AnswersWhole) {
  script("Hello there");
  start();
  const auto response = post(kPath, body());
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(response["object"], "chat.completion");
  EXPECT_EQ(response["model"], "test-model");
  EXPECT_GT(response["created"], 1700000000);
  ASSERT_EQ(response["choices"].size(), 1);
  EXPECT_THAT(response["system_fingerprint"].get<std::string>(), testing::StartsWith("gannet-"));
  const TestJson expected = {{"index", 0},
                             {"message", {{"role", "assistant"}, {"content", "Hello there"}}},
                             {"logprobs", nullptr},
                             {"finish_reason", "stop"}};
  EXPECT_EQ(response["choices"][0], expected);
  const auto& usage = response["usage"];
  const auto prompt = static_cast<int64_t>(engine_.seen()[0].prompt.size());
  EXPECT_EQ(usage["prompt_tokens"], prompt);
  EXPECT_EQ(usage["completion_tokens"], engine_.script.size());
  EXPECT_EQ(usage["total_tokens"], prompt + static_cast<int64_t>(engine_.script.size()));
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(usage["prompt_cache_miss_tokens"], prompt);
}

TEST_F(OpenAiChatTest, AnswersWholeWhateverIsReadyAtOnce) {
  constexpr size_t kTokens = 3000;
  const int32_t x = tokenizer().encode("x")->front();
  engine_.script.assign(kTokens, x);
  engine_.script.push_back(engine_.config().eos_token_id);
  engine_.with_logprobs = true;
  start();
  TestJson request = body();
  request["logprobs"] = true;
  const auto response = post(kPath, request);
  EXPECT_EQ(response["choices"][0]["message"]["content"], std::string(kTokens, 'x'));
  EXPECT_EQ(response["choices"][0]["logprobs"]["content"].size(), kTokens + 1);
  EXPECT_EQ(response["usage"]["completion_tokens"], kTokens + 1);
}

TEST_F(OpenAiChatTest, SendsTheEncodedConversationToTheEngine) {
  script("x");
  start();
  TestJson request = body(true);
  request["temperature"] = 0.25;
  request["top_p"] = 0.5;
  request["seed"] = 7;
  request["max_completion_tokens"] = 11;
  post(kPath, request);
  const auto chat = text::chat_request(request.dump());
  ASSERT_TRUE(chat);
  const auto prompt = text::encode_chat(*chat, tokenizer());
  ASSERT_TRUE(prompt);
  const auto seen = engine_.seen()[0];
  EXPECT_EQ(seen.prompt, *prompt);
  EXPECT_EQ(seen.sampling.temperature, 0.25);
  EXPECT_EQ(seen.sampling.top_p, 0.5);
  EXPECT_EQ(seen.sampling.seed, 7);
  EXPECT_EQ(seen.sampling.max_tokens, 11);
  EXPECT_THAT(seen.sampling.stop_ids, ElementsAre(1));
}

TEST_F(OpenAiChatTest, PassesAllSamplingOn) {
  script("x");
  start();
  TestJson request = body();
  request["top_k"] = 5;
  request["min_p"] = 0.25;
  request["presence_penalty"] = 0.5;
  request["frequency_penalty"] = -0.5;
  request["repetition_penalty"] = 1.5;
  request["min_tokens"] = 1;
  request["logit_bias"] = {{"7", -100}, {"8", 2.5}};
  request["allowed_token_ids"] = {7, 8};
  request["bad_words"] = {"ab"};
  request["prompt_logprobs"] = 3;
  request["priority"] = -2;
  model_.accepts_priority = true;
  request["cache_salt"] = "tenant";
  post(kPath, request);
  const auto seen = engine_.seen()[0];
  EXPECT_EQ(seen.sampling.top_k, 5);
  EXPECT_EQ(seen.sampling.min_p, 0.25);
  EXPECT_EQ(seen.sampling.presence_penalty, 0.5);
  EXPECT_EQ(seen.sampling.frequency_penalty, -0.5);
  EXPECT_EQ(seen.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(seen.sampling.min_tokens, 1);
  EXPECT_THAT(seen.sampling.logit_bias, ElementsAre(testing::Pair(7, -100.F), testing::Pair(8, 2.5F)));
  EXPECT_THAT(seen.sampling.allowed_ids, ElementsAre(7, 8));
  EXPECT_THAT(seen.sampling.bad_words, ElementsAre(*tokenizer().encode("ab"), *tokenizer().encode(" ab")));
  EXPECT_EQ(seen.sampling.prompt_logprobs, 3);
  EXPECT_EQ(seen.sampling.logprobs, -1);
  EXPECT_EQ(seen.priority, -2);
  EXPECT_EQ(seen.cache_salt, "tenant");
}

TEST_F(OpenAiChatTest, PrioritiesAreForTheOperatorToAllow) {
  script("Hello");
  start();
  TestJson request = body();
  request["priority"] = -2;
  post(kPath, request);
  EXPECT_EQ(engine_.seen()[0].priority, 0);
  request["priority"] = "high";
  post(kPath, request, 400);
}

TEST_F(OpenAiChatTest, ReportsCachedTokens) {
  engine_.cached_tokens = 3;
  script("Hello");
  start();
  TestJson request = body();
  request["n"] = 2;
  const auto usage = post(kPath, request)["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(usage["prompt_cache_hit_tokens"], 3);
  EXPECT_EQ(usage["prompt_cache_miss_tokens"], usage["prompt_tokens"].get<int64_t>() - 3);
  request["stream_options"]["include_usage"] = true;
  EXPECT_EQ(stream(kPath, request).back()["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST_F(OpenAiChatTest, SeveralAnswersShareOnePrompt) {
  script("Hello");
  start();
  TestJson request = body();
  request["n"] = 3;
  request["allowed_token_ids"] = {1, 2, 3};
  post(kPath, request);
  const auto seen = engine_.seen();
  ASSERT_EQ(seen.size(), 3U);
  for (const auto& one : seen) {
    EXPECT_EQ(one.prompt.data(), seen[0].prompt.data());
    EXPECT_EQ(one.sampling.allowed_ids.data(), seen[0].sampling.allowed_ids.data());
  }
}

TEST_F(OpenAiChatTest, ReturnsTokenIds) {
  script("Hello there");
  start();
  TestJson request = body();
  request["return_token_ids"] = true;
  const auto whole = post(kPath, request);
  EXPECT_EQ(whole["prompt_token_ids"], engine_.seen()[0].prompt.values());
  EXPECT_EQ(whole["choices"][0]["token_ids"], engine_.script);
  std::vector<int32_t> streamed;
  const auto events = stream(kPath, request);
  for (const auto& event : events) {
    EXPECT_EQ(event.contains("prompt_token_ids"), event == events.front());
    for (const auto& id : event["choices"][0].value("token_ids", TestJson::array())) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, engine_.script);
}

TEST_F(OpenAiChatTest, NamesTokensByIdIfAsked) {
  engine_.with_logprobs = true;
  script("Hi");
  start();
  TestJson request = body();
  request["logprobs"] = true;
  request["top_logprobs"] = 1;
  request["return_tokens_as_token_ids"] = true;
  const auto first = post(kPath, request)["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], "token_id:" + std::to_string(engine_.script[0]));
  EXPECT_EQ(first["top_logprobs"][1]["token"], "token_id:3");
}

TEST_F(OpenAiChatTest, ReturnsPromptLogprobs) {
  script("Hi");
  start();
  TestJson request = body();
  request["prompt_logprobs"] = 1;
  const auto list = post(kPath, request)["prompt_logprobs"];
  const auto prompt = engine_.seen()[0].prompt;
  ASSERT_EQ(list.size(), prompt.size());
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1][std::to_string(prompt[1])]["logprob"], -0.25);
  EXPECT_EQ(list[1][std::to_string(prompt[1])]["rank"], 1);
  EXPECT_EQ(list[1]["3"]["logprob"], -2.25);
  EXPECT_EQ(stream(kPath, request).front()["prompt_logprobs"], list);
}

TEST_F(OpenAiChatTest, HidesReasoningIfAsked) {
  script("Hm</think>Yes");
  start();
  TestJson request = body(true);
  request["include_reasoning"] = false;
  EXPECT_FALSE(post(kPath, request)["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(joined(stream(kPath, request), "reasoning_content"), "");
  EXPECT_EQ(joined(stream(kPath, request), "content"), "Yes");
}

TEST_F(OpenAiChatTest, KeepsTheEndOfATruncatedPrompt) {
  script("x");
  start();
  TestJson request = body();
  post(kPath, request);
  const auto whole = engine_.seen().back().prompt;
  request["truncate_prompt_tokens"] = 3;
  EXPECT_EQ(post(kPath, request)["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(engine_.seen().back().prompt, std::vector<int32_t>(whole.end() - 3, whole.end()));
  engine_.context = 5;
  request["truncate_prompt_tokens"] = -1;
  post(kPath, request);
  EXPECT_EQ(engine_.seen().back().prompt, std::vector<int32_t>(whole.end() - 4, whole.end()));
}

TEST_F(OpenAiChatTest, BudgetEndsTheReasoning) {
  script("one two three four</think>Yes");
  start();
  TestJson request = body(true);
  request["thinking_token_budget"] = 0;
  EXPECT_EQ(post(kPath, request)["choices"][0]["message"]["reasoning_content"], "");
  request["thinking"]["type"] = "disabled";
  EXPECT_EQ(post(kPath, request)["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(engine_.seen().back().constraint, nullptr);
}

// Constrains every token of an answer to one id.
class OnlyToken : public TokenConstraint {
 public:
  explicit OnlyToken(int32_t id) : id_(id) {}
  bool active() const override { return true; }
  void fill_mask(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0U);
    mask[static_cast<size_t>(id_) / 32] = 1U << (static_cast<uint32_t>(id_) % 32);
  }
  void accept(int32_t) override {}

 private:
  int32_t id_;
};

TEST_F(OpenAiChatTest, ConstrainsEachAnswerByItself) {
  script("abc", false);
  const int32_t z = tokenizer().encode("z")->front();
  std::vector<text::ResponseFormat::Kind> kinds;
  model_.make_constraint = [&](const text::ChatRequest& chat) -> Result<std::shared_ptr<TokenConstraint>> {
    kinds.push_back(chat.structured_output.kind);
    if (chat.structured_output.regex == "bad") return invalid_input("guided_regex: bad");
    return std::make_shared<OnlyToken>(z);
  };
  start();
  TestJson request = body();
  request["n"] = 2;
  request["guided_regex"] = "z+";
  EXPECT_EQ(post(kPath, request)["choices"][1]["message"]["content"], std::string(engine_.script.size(), 'z'));
  EXPECT_THAT(kinds, ElementsAre(text::ResponseFormat::Kind::regex, text::ResponseFormat::Kind::regex));
  request["guided_regex"] = "bad";
  EXPECT_EQ(post(kPath, request, 400)["error"]["param"], "guided_regex");
}

TEST_F(OpenAiChatTest, RefusesFormsThatItCannotBringAbout) {
  script("x");
  start();
  TestJson request = body();
  request["guided_regex"] = "z+";
  EXPECT_EQ(post(kPath, request, 400)["error"]["param"], "structured_outputs");
  request = body_with_tools();
  request["tool_choice"] = "required";
  EXPECT_EQ(post(kPath, request, 400)["error"]["param"], "tool_choice");
}

TEST_F(OpenAiChatTest, IgnoresWhatItDoesNotKnow) {
  script("x");
  start();
  TestJson request = body();
  request["no_such_field"] = {{"a", TestJson::array()}};
  request["verbosity"] = "low";
  request["kv_transfer_params"] = {{"x", 1}};
  request["metadata"] = {{"k", "v"}};
  post(kPath, request);
}

TEST_F(OpenAiChatTest, IgnoreEosLeavesTheClientsStopTokens) {
  script("x");
  start();
  TestJson request = body();
  request["stop_token_ids"] = {7};
  post(kPath, request);
  EXPECT_THAT(engine_.seen().back().sampling.stop_ids, ElementsAre(7, 1));
  request["ignore_eos"] = true;
  post(kPath, request);
  EXPECT_THAT(engine_.seen().back().sampling.stop_ids, ElementsAre(7));
}

TEST_F(OpenAiChatTest, AllowsTheRestOfTheContextByDefault) {
  script("x");
  start();
  post(kPath, body());
  TestJson large = body();
  large["max_tokens"] = 1'000'000;
  post(kPath, large);
  for (const auto& seen : engine_.seen()) {
    EXPECT_EQ(seen.sampling.max_tokens, engine_.context - static_cast<int64_t>(seen.prompt.size()));
  }
}

TEST_F(OpenAiChatTest, Streams) {
  script("Hello there");
  start();
  const auto events = stream(kPath, body());
  ASSERT_GE(events.size(), 3);
  EXPECT_EQ(events.front()["choices"][0]["delta"], (TestJson{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(joined(events, "content"), "Hello there");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events.back()["choices"][0]["delta"], (TestJson{{"content", ""}})) << "clients read its content";
  for (const auto& event : events) {
    EXPECT_EQ(event["id"], events.front()["id"]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["model"], "test-model");
    EXPECT_FALSE(event.contains("usage"));
    EXPECT_EQ(event["choices"][0]["finish_reason"].is_null(), event != events.back());
  }
}

TEST_F(OpenAiChatTest, StreamsEachTokenWhenItComes) {
  engine_.by_steps = true;
  script("one two three");
  start();
  auto client = connect();
  TestJson request = body();
  request["stream"] = true;
  client.send(TestConnection::request_text("POST", kPath, request.dump()));
  EXPECT_EQ(client.read_head().status, 200);
  ASSERT_TRUE(engine_.wait_for_requests(1));
  std::string text;
  const auto read_content = [&](size_t length) {
    while (text.size() < length) {
      const auto event = client.read_through("\n\n");
      if (!event) return;
      const auto json = TestJson::parse(event->substr(event->find('{')), nullptr, false);
      text += json["choices"][0]["delta"].value("content", "");
    }
  };
  std::string expected;
  for (const int32_t id : engine_.script) {
    engine_.step();
    if (id == 1) break;
    expected += tokenizer().token_bytes(id);
    read_content(expected.size());
    EXPECT_EQ(text, expected);
  }
}

TEST_F(OpenAiChatTest, ReportsUsageInStreams) {
  script("Hello there");
  start();
  TestJson request = body();
  request["stream_options"]["include_usage"] = true;
  auto events = stream(kPath, request);
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], engine_.script.size());
  EXPECT_TRUE(events.front()["usage"].is_null());

  request["stream_options"]["continuous_usage_stats"] = true;
  events = stream(kPath, request);
  for (const auto& event : events) EXPECT_GT(event["usage"]["prompt_tokens"], 0);
}

TEST_F(OpenAiChatTest, SeparatesReasoning) {
  script("I think\nso</think>Yes.");
  start();
  const auto whole = post(kPath, body(true));
  const auto& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "I think\nso");
  EXPECT_EQ(message["content"], "Yes.");
  const auto before = tokenizer().encode("I think\nso");
  EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], before->size());

  const auto events = stream(kPath, body(true));
  EXPECT_EQ(joined(events, "reasoning_content"), "I think\nso");
  EXPECT_EQ(joined(events, "content"), "Yes.");
}

TEST_F(OpenAiChatTest, ReturnsToolCalls) {
  script(tool_call_script());
  start();
  const auto whole = post(kPath, body_with_tools());
  const auto& choice = whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Calling.");
  const auto& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2);
  EXPECT_THAT(calls[0]["id"].get<std::string>(), testing::StartsWith("call_00_"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "get");
  const auto arguments = TestJson::parse(calls[0]["function"]["arguments"].get<std::string>());
  EXPECT_EQ(arguments, (TestJson{{"city", "Oslo \"x\""}, {"n", 3}}));
  EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
}

TEST_F(OpenAiChatTest, StreamsToolCalls) {
  script(tool_call_script());
  start();
  const auto events = stream(kPath, body_with_tools());
  std::vector<std::string> names;
  std::vector<std::string> arguments(2);
  for (const auto& event : events) {
    const auto& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const auto& call = delta["tool_calls"][0];
    if (call.contains("id")) {
      EXPECT_EQ(call["index"], names.size());
      EXPECT_EQ(call["type"], "function");
      EXPECT_EQ(call["function"]["arguments"], "");
      names.push_back(call["function"]["name"]);
    } else {
      EXPECT_FALSE(call["function"].contains("name"));
      arguments.at(call["index"].get<size_t>()) += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_THAT(names, ElementsAre("get", "get"));
  EXPECT_EQ(TestJson::parse(arguments[0])["n"], 3);
  EXPECT_EQ(arguments[1], "{}");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(joined(events, "content").find("DSML"), std::string::npos);
}

std::string one_call(const std::string& parameter) {
  return "</think>Calling.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get\">\n<｜DSML｜ parameter name=\"n\" " +
         parameter + "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

TEST_F(OpenAiChatTest, ValuesThatAreNoJsonAreStrings) {
  for (const std::string value : {"NaN", "{\"a\":", "Oslo", "[1, 2", "'x'"}) {
    script(one_call("string=\"false\">" + value));
    start();
    const auto events = stream(kPath, body_with_tools());
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
    const auto call = post(kPath, body_with_tools())["choices"][0]["message"]["tool_calls"][0];
    const auto arguments = TestJson::parse(call["function"]["arguments"].get<std::string>());
    EXPECT_EQ(arguments, (TestJson{{"n", value}}));
    TearDown();
  }
}

TEST_F(OpenAiChatTest, MalformedCallsAreShownAndLogged) {
  script(one_call(">3"));
  start();
  testing::internal::CaptureStderr();
  ASSERT_TRUE(start_logging("warning", LogFormat::text));
  auto client = connect();
  const auto response = client.request("POST", kPath, body_with_tools().dump(), "X-Request-Id: trace-9\r\n");
  const auto events = stream(kPath, body_with_tools());
  TearDown();
  const std::string log = testing::internal::GetCapturedStderr();
  start_logging("error", LogFormat::text);
  EXPECT_THAT(log, HasSubstr("warning [trace-9] malformed tool calls in the answer: 1; the answer shows"));
  const auto choice = TestJson::parse(response.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_THAT(choice["message"]["content"].get<std::string>(), HasSubstr("parameter name=\"n\" >3"));
  EXPECT_EQ(joined(events, "content"), choice["message"]["content"]);
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiChatTest, StreamsEndInOrderWhereverACallIsCut) {
  script(one_call("string=\"true\">Oslo"), false);
  engine_.finish = gannet::FinishReason::length;
  const auto whole = engine_.script;
  start();
  for (size_t length = 1; length < whole.size(); ++length) {
    engine_.script.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const auto events = stream(kPath, body_with_tools());
    const bool has_call = std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event["choices"][0]["delta"].contains("tool_calls");
    });
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], has_call ? "tool_calls" : "length") << length;
    EXPECT_EQ(joined(events, "content").find("DSML"), std::string::npos) << length;
  }
}

TEST_F(OpenAiChatTest, LeavesOutContentThatIsNotThere) {
  script("</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  start();
  const auto whole = post(kPath, body_with_tools());
  EXPECT_TRUE(whole["choices"][0]["message"]["content"].is_null());
}

TEST_F(OpenAiChatTest, StopsAtStopStringsAcrossTokens) {
  script("Hello there, STOPPED here");
  start();
  TestJson request = body();
  request["stop"] = {"STOP", "never"};
  const auto whole = post(kPath, request);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Hello there, ");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(whole["choices"][0]["stop_reason"], "STOP");
  EXPECT_LT(whole["usage"]["completion_tokens"], engine_.script.size());
  EXPECT_EQ(joined(stream(kPath, request), "content"), "Hello there, ");

  request["include_stop_str_in_output"] = true;
  EXPECT_EQ(post(kPath, request)["choices"][0]["message"]["content"], "Hello there, STOP");
  EXPECT_EQ(joined(stream(kPath, request), "content"), "Hello there, STOP");
}

TEST_F(OpenAiChatTest, CancelsTheEngineAtAStopString) {
  engine_.by_steps = true;
  script("aXb");
  start();
  auto client = connect();
  TestJson request = body();
  request["stop"] = "X";
  client.send(TestConnection::request_text("POST", kPath, request.dump()));
  ASSERT_TRUE(engine_.wait_for_requests(1));
  engine_.step(2);
  EXPECT_EQ(TestJson::parse(client.read_response().body)["choices"][0]["message"]["content"], "a");
  EXPECT_TRUE(engine_.wait_for_cancelled(1));
}

TEST_F(OpenAiChatTest, SaysWhenTheLengthEndedIt) {
  script("Hello there");
  start();
  TestJson request = body();
  request["max_tokens"] = 2;
  const auto whole = post(kPath, request);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 2);
  EXPECT_EQ(stream(kPath, request).back()["choices"][0]["finish_reason"], "length");
}

TEST_F(OpenAiChatTest, NeverShowsControlTokens) {
  script("a<｜User｜>b<｜begin▁of▁sentence｜>c<｜place▁holder▁no▁1｜>d<think>e");
  start();
  const std::string content = post(kPath, body())["choices"][0]["message"]["content"];
  EXPECT_EQ(content, "abcde");
}

TEST_F(OpenAiChatTest, KeepsCharactersWhole) {
  script("é🙂 日本");
  start();
  const auto events = stream(kPath, body());
  EXPECT_EQ(joined(events, "content"), "é🙂 日本");
  for (const auto& event : events) EXPECT_THAT(event.dump(), testing::Not(HasSubstr("\xEF\xBF\xBD")));
}

TEST_F(OpenAiChatTest, GivesSeveralAnswers) {
  script("Hi");
  start();
  TestJson request = body();
  request["n"] = 3;
  request["seed"] = 5;
  const auto whole = post(kPath, request);
  ASSERT_EQ(whole["choices"].size(), 3);
  EXPECT_EQ(whole["choices"][2]["index"], 2);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 3 * engine_.script.size());
  EXPECT_EQ(whole["usage"]["prompt_tokens"], engine_.seen()[0].prompt.size());
  EXPECT_EQ(engine_.seen()[0].sampling.seed, 5);
  EXPECT_EQ(engine_.seen()[2].sampling.seed, 7);
  const auto events = stream(kPath, request);
  for (int index = 0; index < 3; ++index) EXPECT_EQ(joined(events, "content", index), "Hi");
}

TEST_F(OpenAiChatTest, ReturnsLogprobs) {
  engine_.with_logprobs = true;
  script("Hi");
  start();
  TestJson request = body();
  request["logprobs"] = true;
  request["top_logprobs"] = 2;
  const auto whole = post(kPath, request);
  const auto& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), engine_.script.size());
  EXPECT_EQ(content[0]["token"], std::string(tokenizer().token_bytes(engine_.script[0])));
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"][0], 'H');
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2);
  EXPECT_EQ(engine_.seen()[0].sampling.logprobs, 2);
  size_t streamed = 0;
  for (const auto& event : stream(kPath, request)) {
    const auto& logprobs = event["choices"][0]["logprobs"];
    if (!logprobs.is_null()) streamed += logprobs["content"].size();
  }
  EXPECT_EQ(streamed, engine_.script.size());
}

TEST_F(OpenAiChatTest, ReportsFailures) {
  script("Hello", false);
  engine_.failure = Error{ErrorKind::failed, "the engine broke"};
  start();
  EXPECT_EQ(post(kPath, body(), 500)["error"]["message"], "the engine broke");
  const auto events = stream(kPath, body());
  EXPECT_EQ(events.back()["error"]["message"], "the engine broke");
}

TEST_F(OpenAiChatTest, CancelsWhenTheClientGoes) {
  engine_.by_steps = true;
  script("Hello there");
  start();
  size_t count = 0;
  for (const bool streaming : {true, false}) {
    for (const size_t steps : {0, 1}) {
      TestJson request = body();
      request["stream"] = streaming;
      request["n"] = 2;
      auto client = connect();
      client.send(TestConnection::request_text("POST", kPath, request.dump()));
      count += 2;
      ASSERT_TRUE(engine_.wait_for_requests(count));
      engine_.step(steps);
      client.close();
      EXPECT_TRUE(engine_.wait_for_cancelled(count));
      EXPECT_EQ(engine_.unfinished(), 0);
    }
  }
}

TEST_F(OpenAiChatTest, SendsCommentsWhileItWaits) {
  engine_.by_steps = true;
  script("Hi");
  HttpServerOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  TestJson request = body();
  request["stream"] = true;
  auto client = connect();
  client.send(TestConnection::request_text("POST", kPath, request.dump()));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_EQ(client.read_chunk(), ": waiting\n\n");
  engine_.step(engine_.script.size());
  EXPECT_TRUE(client.read_through("data: [DONE]\n\n"));
}

TEST_F(OpenAiChatTest, ServesManyAtOnce) {
  engine_.by_steps = true;
  script("Hello there");
  start();
  constexpr size_t kClients = 100;
  TestJson request = body();
  request["stream"] = true;
  std::vector<TestConnection> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(connect());
    clients.back().send(TestConnection::request_text("POST", kPath, request.dump()));
  }
  ASSERT_TRUE(engine_.wait_for_requests(kClients));
  for (size_t i = 0; i < engine_.script.size(); ++i) engine_.step();
  for (auto& client : clients) EXPECT_EQ(joined(events(client.read_response().body), "content"), "Hello there");
}

}  // namespace
}  // namespace gannet::server
