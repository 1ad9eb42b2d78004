#include "server/responses.h"

#include "server/api_test_fixture.h"
#include "server/responses_store.h"
#include "text/chat_encoder.h"
#include "text/protocol/responses_body.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

constexpr const char* kPath = "/v1/responses";

class ResponsesTest : public ApiTest {
 protected:
  static TestJson body(bool thinking = false) {
    TestJson json;
    json["model"] = "test-model";
    json["input"] = "hi";
    json["reasoning"]["effort"] = thinking ? "high" : "none";
    return json;
  }

  std::vector<TestJson> stream_responses(TestJson json) {
    json["stream"] = true;
    const auto response = connect().request("POST", kPath, json.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<TestJson> events;
    for (size_t begin = 0; begin < response.body.size();) {
      const size_t end = response.body.find("\n\n", begin);
      const std::string event = response.body.substr(begin, end - begin);
      begin = end + 2;
      const size_t data = event.find("\ndata: ");
      events.push_back(TestJson::parse(event.substr(data + 7), nullptr, false));
      EXPECT_EQ(event.substr(0, data), "event: " + events.back()["type"].get<std::string>());
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }

  void expect_refused(const TestJson& json, const std::string& part) {
    EXPECT_THAT(post(kPath, json, 400)["error"]["message"].get<std::string>(), HasSubstr(part)) << json;
  }
};

TEST_F(ResponsesTest, AnswersWhole) {
  engine_.cached_tokens = 4;
  script("Hm</think>Hello there");
  start();
  const auto response = post(kPath, body(true));
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("resp_"));
  EXPECT_EQ(response["status"], "completed");
  ASSERT_EQ(response["output"].size(), 2);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hm");
  EXPECT_FALSE(response["output"][0].contains("encrypted_content"));
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "Hello there");
  EXPECT_TRUE(response["store"]);
  const auto prompt = static_cast<int64_t>(engine_.seen()[0].prompt.size());
  const auto& usage = response["usage"];
  EXPECT_EQ(usage["input_tokens"], prompt);
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(usage["output_tokens"], engine_.script.size());
  EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], tokenizer().encode("Hm")->size());
  EXPECT_EQ(usage["total_tokens"], prompt + static_cast<int64_t>(engine_.script.size()));
}

TEST_F(ResponsesTest, TheStreamEndsWithTheWholeResponse) {
  script("Hm</think>Hello there");
  start();
  const auto events = stream_responses(body(true));
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events[1]["type"], "response.in_progress");
  EXPECT_EQ(events.back()["type"], "response.completed");
  std::vector<TestJson> done;
  for (const auto& event : events) {
    if (event["type"] == "response.output_item.done") done.push_back(event["item"]);
  }
  EXPECT_EQ(events.back()["response"]["output"], TestJson(done));
}

TEST_F(ResponsesTest, SplitsTheNamesOfNamespacedTools) {
  script(
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ns::g\">\n\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"f\">\n\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  start();
  TestJson json = body();
  json["tools"] = TestJson::parse(
      R"([{"type":"function","name":"f"},{"type":"namespace","name":"ns","tools":[{"type":"function","name":"g"}]},)"
      R"({"type":"web_search"}])");
  const auto output = post(kPath, json)["output"];
  ASSERT_EQ(output.size(), 2);
  EXPECT_EQ(output[0]["name"], "g");
  EXPECT_EQ(output[0]["namespace"], "ns");
  EXPECT_EQ(output[1]["name"], "f");
  EXPECT_FALSE(output[1].contains("namespace"));
  size_t arguments = 0;
  for (const auto& event : stream_responses(json)) {
    if (event["type"] != "response.function_call_arguments.done") continue;
    EXPECT_EQ(event["arguments"], "{}");
    EXPECT_EQ(event["name"], arguments++ == 0 ? "g" : "f");
  }
  EXPECT_EQ(arguments, 2);
}

TEST_F(ResponsesTest, TellsTheLogprobsOfItsText) {
  engine_.with_logprobs = true;
  script("Hm so</think>Hello there");
  start();
  TestJson json = body(true);
  json["include"] = {"message.output_text.logprobs"};
  const auto part = post(kPath, json)["output"][1]["content"][0];
  std::string text;
  for (const auto& entry : part["logprobs"]) {
    text += entry["token"];
    EXPECT_EQ(entry["logprob"], -0.5);
    EXPECT_EQ(entry["top_logprobs"].size(), 2);
    EXPECT_EQ(entry["bytes"].size(), entry["token"].get<std::string>().size());
  }
  EXPECT_EQ(text, "Hello there");
  EXPECT_EQ(engine_.seen()[0].sampling.logprobs, 0);

  json.erase("include");
  json["top_logprobs"] = 2;
  TestJson streamed = TestJson::array();
  for (const auto& event : stream_responses(json)) {
    if (event["type"] == "response.output_text.delta") {
      for (const auto& entry : event["logprobs"]) streamed.push_back(entry);
    }
    if (event["type"] == "response.output_text.done") {
      EXPECT_EQ(event["logprobs"], part["logprobs"]);
    }
  }
  EXPECT_EQ(streamed, part["logprobs"]);
  EXPECT_EQ(engine_.seen()[1].sampling.logprobs, 2);
}

TEST_F(ResponsesTest, EncryptedContentRestoresTheReasoning) {
  script("Hm</think>Hello");
  start();
  TestJson json = body(true);
  json["include"] = {"reasoning.encrypted_content"};
  json["tools"] = {{{"type", "function"}, {"name", "f"}}};
  auto output = post(kPath, json)["output"];
  output[0].erase("content");  // as clients of the hosted API send it back
  json["input"] = {{{"role", "user"}, {"content", "hi"}}, output[0], output[1], {{"role", "user"}, {"content", "z"}}};
  post(kPath, json);
  EXPECT_THAT(*tokenizer().decode(engine_.seen().back().prompt), HasSubstr("<think>Hm</think>Hello"));
}

TEST_F(ResponsesTest, GoesOnFromAnEarlierResponse) {
  script("Hello");
  start();
  const auto first = post(kPath, body());
  TestJson second = body();
  second["previous_response_id"] = first["id"];
  second["input"] = "and?";
  const auto response = post(kPath, second);
  EXPECT_EQ(response["previous_response_id"], first["id"]);
  EXPECT_EQ(*tokenizer().decode(engine_.seen().back().prompt),
            "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>Hello<｜end▁of▁sentence｜><｜User｜>and?"
            "<｜Assistant｜></think>");
  second["previous_response_id"] = response["id"];
  second["input"] = {{{"role", "user"}, {"content", "third"}}};
  stream_responses(second);
  EXPECT_THAT(*tokenizer().decode(engine_.seen().back().prompt),
              HasSubstr("<｜User｜>and?<｜Assistant｜></think>Hello"));
}

TEST_F(ResponsesTest, KeepsNothingIfAskedNotTo) {
  script("Hello");
  start();
  TestJson json = body();
  json["store"] = false;
  json["previous_response_id"] = post(kPath, json)["id"];
  const auto error = post(kPath, json, 400)["error"];
  EXPECT_EQ(error["code"], "previous_response_not_found");
  EXPECT_EQ(error["param"], "previous_response_id");
}

TEST_F(ResponsesTest, TellsWhatCutItOff) {
  script("Hello there");
  start();
  TestJson json = body();
  json["max_output_tokens"] = 1;
  const auto response = post(kPath, json);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(stream_responses(json).back()["type"], "response.incomplete");
}

TEST_F(ResponsesTest, FailuresAreResponsesThatFailed) {
  script("Hello", false);
  engine_.failure = Error{ErrorKind::failed, "the engine broke"};
  start();
  const auto last = stream_responses(body()).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["code"], "server_error");
  EXPECT_EQ(last["response"]["error"]["message"], "the engine broke");
  EXPECT_EQ(post(kPath, body(), 500)["error"]["message"], "the engine broke");
}

TEST_F(ResponsesTest, TooLongPromptsFailWhereClientsLook) {
  engine_.context = 20;
  script("x");
  start();
  TestJson json = body();
  json["input"] = std::string(100, 'x');
  EXPECT_EQ(post(kPath, json, 400)["error"]["code"], "context_length_exceeded");
  const auto events = stream_responses(json);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "context_length_exceeded");
}

TEST_F(ResponsesTest, RefusesWhatItCannotDo) {
  start();
  expect_refused(TestJson::object(), "input: missing");
  TestJson json = body();
  json["background"] = true;
  expect_refused(json, "background");
  json = body();
  json["conversation"] = "conv_1";
  expect_refused(json, "conversation");
  json = body();
  json["prompt"] = {{"id", "pmpt_1"}};
  expect_refused(json, "prompt");
  json = body();
  json["n"] = 2;
  expect_refused(json, "n: 2");
  json = body();
  json["store"] = "yes";
  expect_refused(json, "store");
  json = body();
  json["tools"] = {{{"type", "function"}, {"name", "f"}}};
  json["tool_choice"] = "required";
  json["reasoning"]["effort"] = "high";
  expect_refused(json, "tool_choice");
  EXPECT_TRUE(engine_.seen().empty());
}

TEST(ResponsesStore, ForgetsTheLeastUsedWhenItIsFull) {
  ResponsesStore store(20);
  store.keep("a", "[1,2,3]");
  store.keep("b", "[4,5,6]");
  EXPECT_EQ(store.find("a")->size(), 3);
  store.keep("c", "[7,8,9]");
  EXPECT_TRUE(store.find("a"));
  EXPECT_FALSE(store.find("b"));
  EXPECT_TRUE(store.find("c"));
  store.keep("d", "[" + std::string(30, ' ') + "]");
  EXPECT_FALSE(store.find("d"));
  EXPECT_TRUE(store.find("a"));
}

}  // namespace
}  // namespace gannet::server
