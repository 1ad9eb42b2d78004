#include "server/api_server.h"

#include "server/api_test_fixture.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

const TestJson kChat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};

class ApiServerTest : public ApiTest {
 protected:
  // An error must have OpenAI's shape whatever went wrong.
  static void expect_error(const TestResponse& response, int status, const std::string& part) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.header("content-type"), "application/json");
    const auto body = TestJson::parse(response.body, nullptr, false);
    ASSERT_TRUE(body.contains("error")) << response.body;
    const auto& error = body["error"];
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_TRUE(error["type"].is_string());
    EXPECT_TRUE(error["param"].is_string() || error["param"].is_null());
    EXPECT_TRUE(error["code"].is_string() || error["code"].is_null());
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  }
};

TEST_F(ApiServerTest, AnswersItsOwnRoutes) {
  start();
  auto client = connect();
  for (const char* path : {"/health", "/live", "/ready", "/ping", "/"}) {
    EXPECT_EQ(client.request("GET", path).status, 200) << path;
    EXPECT_EQ(client.request("HEAD", path).status, 200) << path;
  }
  EXPECT_THAT(client.request("GET", "/version").body, HasSubstr("version"));
}

TEST_F(ApiServerTest, ListsTheModels) {
  start();
  const auto response = connect().request("GET", "/v1/models");
  const auto models = TestJson::parse(response.body);
  EXPECT_EQ(models["object"], "list");
  ASSERT_EQ(models["data"].size(), 2);
  const TestJson expected = {{"id", "test-model"},
                             {"object", "model"},
                             {"created", 1700000000},
                             {"owned_by", "gannet"},
                             {"max_model_len", 4096}};
  EXPECT_EQ(models["data"][0], expected);
  EXPECT_EQ(TestJson::parse(connect().request("GET", "/v1/models/test-model").body), expected);
}

TEST_F(ApiServerTest, FindsModelsByEscapedNames) {
  model_.names = {"org/model 1"};
  start();
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/v1/models/org%2Fmodel%201").status, 200);
  EXPECT_EQ(client.request("GET", "/v1/models/org/model%201").status, 200);
  expect_error(client.request("GET", "/v1/models/other"), 404, "`other` does not exist");
  expect_error(client.request("GET", "/v1/models/%"), 404, "`%`");
  expect_error(client.request("GET", "/v1/models/%4"), 404, "`%4`");
  expect_error(client.request("GET", "/v1/models/"), 404, "no /v1/models/");
}

TEST_F(ApiServerTest, RefusesUnknownRoutesAndMethods) {
  start();
  auto client = connect();
  expect_error(client.request("GET", "/nowhere"), 404, "/nowhere");
  expect_error(client.request("POST", "/v1/embeddings", "{}"), 404, "/v1/embeddings");
  expect_error(client.request("GET", "/v1"), 404, "/v1");
  expect_error(client.request("GET", "/v1/models/../models"), 404, "");
  expect_error(client.request("GET", "/v1/chat/completions"), 405, "takes POST, not GET");
  expect_error(client.request("DELETE", "/v1/models"), 405, "takes GET, not DELETE");
  expect_error(client.request("OPTIONS", "/v1/chat/completions"), 405, "OPTIONS");
  expect_error(client.request("POST", "/health", "{}"), 405, "takes GET, not POST");
  EXPECT_EQ(client.request("GET", "/v1/completions").header("allow"), "POST");
  EXPECT_EQ(client.request("HEAD", "/v1").status, 404);
}

TEST_F(ApiServerTest, ChecksTheKey) {
  start({}, "secret");
  auto client = connect();
  expect_error(client.request("GET", "/v1/models"), 401, "API key");
  expect_error(client.request("GET", "/v1/models", "", "Authorization: Bearer wrong!\r\n"), 401, "API key");
  expect_error(client.request("GET", "/v1/models", "", "Authorization: Bearer secre\r\n"), 401, "API key");
  expect_error(client.request("GET", "/v1/models", "", "Authorization: secret\r\n"), 401, "API key");
  expect_error(client.request("GET", "/nowhere"), 401, "API key");
  EXPECT_EQ(client.request("GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(client.request("GET", "/v1/models", "", "authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(client.request("GET", "/v1/models", "", "X-Api-Key: secret\r\n").status, 200);
  EXPECT_EQ(client.request("GET", "/health").status, 200);
}

TEST_F(ApiServerTest, RefusesRequestsBeforeAndAfterServing) {
  start({}, "", false);
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/live").status, 200);
  expect_error(client.request("GET", "/ready"), 503, "loaded");
  expect_error(client.request("POST", "/v1/chat/completions", kChat.dump()), 503, "loaded");
  EXPECT_EQ(client.request("GET", "/v1/models").header("retry-after"), "1");
  api_->start_serving(model_);
  EXPECT_EQ(client.request("GET", "/ready").status, 200);
  EXPECT_EQ(client.request("GET", "/v1/models").status, 200);
  api_->stop_serving();
  expect_error(client.request("GET", "/ready"), 503, "shutting down");
  expect_error(client.request("POST", "/v1/chat/completions", kChat.dump()), 503, "shutting down");
}

TEST_F(ApiServerTest, RefusesBadBodies) {
  script("x");
  start();
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {"", "JSON"},
      {"{", "JSON"},
      {"nonsense", "JSON"},
      {"[]", "object"},
      {"\"text\"", "object"},
      {"{\"messages\": []} trailing", "JSON"},
      {"{\"messages\": \"\xff\xfe\"}", "JSON"},
      {"{\"messages\": " + deep + "}", "JSON"},
      {"{}", ""},
      {R"({"messages": null})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [{"role": "wizard", "content": "hi"}]})", "role"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]})",
       "image"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 9})", "temperature"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "temperature": "hot"})", "temperature"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 0})", "max_tokens"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1.5})", "max_tokens"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "n": 0})", "n"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "n": 1000000})", "n"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "top_logprobs": 99, "logprobs": true})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "stream": "yes"})", "stream"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "presence_penalty": 3})", "presence_penalty"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "logit_bias": {"5": 101}})", "logit_bias"},
  };
  for (const auto& [body, part] : bodies) {
    auto client = connect();
    const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n" + length + body);
    expect_error(client.read_response(), 400, part);
    EXPECT_EQ(client.request("GET", "/health").status, 200) << "the connection must stay usable";
  }
}

TEST_F(ApiServerTest, RefusesOtherModels) {
  start();
  TestJson body = kChat;
  body["model"] = "gpt-4";
  auto client = connect();
  expect_error(client.request("POST", "/v1/chat/completions", body.dump()), 404, "`gpt-4` does not exist");
  expect_error(client.request("POST", "/v1/completions", R"({"model": "gpt-4", "prompt": "x"})"), 404, "`gpt-4`");
}

TEST_F(ApiServerTest, RepeatsOnlyTheStartOfAClientsText) {
  start();
  auto client = connect();
  const std::string name = std::string(99, 'x') + "é" + std::string(10'000, 'y');
  const TestJson body = {{"model", name}, {"prompt", "x"}};
  const std::string cut = "`" + std::string(99, 'x') + "` does not exist";
  expect_error(client.request("POST", "/v1/completions", body.dump()), 404, cut);
  const auto response = client.request("POST", "/v1/models/" + std::string(10'000, 'x'), "{}");
  EXPECT_EQ(response.status, 405);
  EXPECT_LT(response.body.size(), 400U);
}

TEST_F(ApiServerTest, RefusesEncodedBodies) {
  start();
  auto client = connect();
  expect_error(client.request("POST", "/v1/completions", "zzzz", "Content-Encoding: gzip\r\n"), 400, "gzip");
}

TEST_F(ApiServerTest, RefusesPromptsThatFillTheContext) {
  engine_.context = 16;
  start();
  TestJson body = {{"prompt", std::string(100, 'x')}};
  auto client = connect();
  const auto response = client.request("POST", "/v1/completions", body.dump());
  expect_error(response, 400, "maximum context length is 16 tokens");
  EXPECT_EQ(TestJson::parse(response.body)["error"]["code"], "context_length_exceeded");
}

TEST_F(ApiServerTest, RefusesTextsThatNoTokensCouldFitBeforeItEncodesThem) {
  start();
  const std::string text(30 << 20, 'x');
  const auto least = (text.size() + tokenizer().longest_token() - 1) / tokenizer().longest_token();
  const TestJson chat = {{"messages", {{{"role", "user"}, {"content", text}}}}};
  const std::pair<const char*, TestJson> bodies[] = {{"/v1/completions", {{"prompt", text}}},
                                                     {"/v1/completions", {{"prompt", {"a", text}}}},
                                                     {"/v1/chat/completions", chat}};
  for (const auto& [path, body] : bodies) {
    auto client = connect();
    const auto response = client.request("POST", path, body.dump());
    expect_error(response, 400, "your prompt has at least ");
    EXPECT_EQ(TestJson::parse(response.body)["error"]["code"], "context_length_exceeded");
  }
  auto client = connect();
  const auto response = client.request("POST", "/v1/completions", bodies[0].second.dump());
  expect_error(response, 400, fmt::format("at least {} tokens", least));
}

TEST_F(ApiServerTest, RefusesWhatTheQueueCannotHold) {
  engine_.by_steps = true;
  model_.max_unfinished = 1;
  script("x");
  start();
  auto first = connect();
  first.send(TestConnection::request_text("POST", "/v1/chat/completions", kChat.dump()));
  ASSERT_TRUE(engine_.wait_for_requests(1));
  const auto response = connect().request("POST", "/v1/chat/completions", kChat.dump());
  expect_error(response, 429, "busy");
  EXPECT_EQ(response.header("retry-after"), "1");
}

TEST_F(ApiServerTest, SaysWhatHttpRefuses) {
  HttpServerOptions options;
  options.body_limit = 1000;
  start(options);
  expect_error(connect().request("POST", "/v1/completions", std::string(1001, ' ')), 413, "1000 bytes");
  auto client = connect();
  client.send("nonsense\r\n\r\n");
  expect_error(client.read_response(), 400, "HTTP");
}

TEST_F(ApiServerTest, TakesAnyOfSeveralKeys) {
  api_options_.api_keys = {"first", "second"};
  start();
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/v1/models", "", "Authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(client.request("GET", "/v1/models", "", "X-Api-Key: second\r\n").status, 200);
  for (const char* path : {"/v1/models", "/get_model_info", "/v1/messages"}) {
    EXPECT_EQ(client.request("GET", path, "", "X-Api-Key: third\r\n").status, 401) << path;
  }
  EXPECT_EQ(client.request("POST", "/flush_cache").status, 401);
  EXPECT_EQ(engine_.cache_resets, 0);
}

TEST_F(ApiServerTest, RefusesStrangersBeforeTheirBody) {
  api_options_.requests_per_minute = 3;
  start({}, "secret");
  const auto status = [this](const std::string& line, const std::string& headers) {
    auto client = connect();
    client.send(line + " HTTP/1.1\r\nHost: t\r\nContent-Length: 30000000\r\n" + headers + "\r\n");
    return client.read_response().status;
  };
  EXPECT_EQ(status("POST /v1/chat/completions", ""), 401);
  EXPECT_EQ(status("POST /v1/chat/completions", "Expect: 100-continue\r\n"), 401);
  EXPECT_EQ(status("POST /v1/messages", "X-Api-Key: other\r\n"), 401);
  EXPECT_EQ(status("POST /v1/messages", "X-Api-Key: other\r\n"), 429);
  EXPECT_EQ(status("POST /v1/nonsense", "X-Api-Key: secret\r\n"), 404);
  EXPECT_EQ(status("GET /v1/completions", "X-Api-Key: secret\r\n"), 405);
  EXPECT_EQ(status("POST /v1/completions", "X-Api-Key: secret\r\nContent-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("GET /health", ""), 400);
}

TEST_F(ApiServerTest, LimitsTheRateOfEachKey) {
  api_options_.api_keys = {"first", "second"};
  api_options_.requests_per_minute = 2;
  start();
  auto client = connect();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(client.request("GET", "/v1/models", "", "X-Api-Key: first\r\n").status, 200);
  }
  const auto response = client.request("GET", "/v1/models", "", "X-Api-Key: first\r\n");
  expect_error(response, 429, "more than 2 requests a minute");
  EXPECT_THAT(response.header("retry-after"), testing::AnyOf("30", "29"));
  EXPECT_EQ(client.request("GET", "/v1/models", "", "X-Api-Key: second\r\n").status, 200);
  EXPECT_EQ(client.request("GET", "/health").status, 200) << "routes about the server are not limited";
}

TEST_F(ApiServerTest, StrangersDoNotUseUpTheRateOfAKey) {
  ApiServer api({.api_keys = {"key"}, .requests_per_minute = 1});
  HttpRequest request;
  request.method = "GET";
  request.path = "/v1/models";
  const auto status = [&] { return std::get<HttpResponse>(api.handle(request)).status; };
  for (size_t i = 0; i < RateLimit::kMostClients + 1; ++i) {
    request.remote = std::to_string(i);
    EXPECT_EQ(status(), 401);
  }
  request.remote = "another";
  EXPECT_EQ(status(), 429);
  request.headers = {{"x-api-key", "key"}};
  EXPECT_EQ(status(), 503) << "let through to a model that is still being loaded";
}

TEST_F(ApiServerTest, ForgetsThePrefixCache) {
  start();
  auto client = connect();
  EXPECT_EQ(client.request("POST", "/reset_prefix_cache").status, 200);
  EXPECT_THAT(client.request("POST", "/flush_cache", "{}").body, HasSubstr("Cache flushed"));
  EXPECT_EQ(engine_.cache_resets, 2);
  expect_error(client.request("GET", "/reset_prefix_cache"), 405, "takes POST");
}

TEST_F(ApiServerTest, SaysThatTheEngineHasFailed) {
  start();
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  engine_.broken = true;
  expect_error(client.request("GET", "/health"), 503, "the device failed");
  expect_error(client.request("GET", "/ready"), 503, "the device failed");
  EXPECT_EQ(client.request("GET", "/live").status, 200);
}

TEST_F(ApiServerTest, RefusesBodiesOfOtherTypes) {
  script("x");
  start();
  auto client = connect();
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"}) {
    const std::string header = std::string("Content-Type: ") + type + "\r\n";
    expect_error(client.request("POST", "/v1/chat/completions", kChat.dump(), header), 415, "application/json");
  }
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8", "application/problem+json"}) {
    const std::string header = std::string("Content-Type: ") + type + "\r\n";
    EXPECT_EQ(client.request("POST", "/v1/chat/completions", kChat.dump(), header).status, 200) << type;
  }
}

TEST_F(ApiServerTest, CountsItsRequests) {
  script("x");
  engine_.reported.running = 3;
  start();
  auto client = connect();
  client.request("POST", "/v1/chat/completions", kChat.dump());
  client.request("GET", "/v1/models/test-model");
  client.request("GET", "/some/nonsense");
  const auto response = client.request("GET", "/metrics");
  EXPECT_EQ(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line : {R"(http_requests_total{handler="/v1/chat/completions",method="POST",status="200"} 1)",
                           R"(http_requests_total{handler="/v1/models/",method="GET",status="200"} 1)",
                           R"(http_requests_total{handler="other",method="GET",status="404"} 1)",
                           R"(vllm:num_requests_running{model_name="test-model",engine="0"} 3)"}) {
    EXPECT_THAT(response.body, HasSubstr(line));
  }
}

TEST_F(ApiServerTest, TellsThePageOfTheEngine) {
  engine_.reported.blocks = 10;
  engine_.reported.blocks_held = 5;
  engine_.reported.waiting = 2;
  start({}, "secret");
  const auto stats = TestJson::parse(connect().request("GET", "/stats").body);
  EXPECT_EQ(stats["needs_key"], true);
  EXPECT_EQ(stats["ready"], true);
  EXPECT_EQ(stats["waiting"], 2);
  EXPECT_EQ(stats["kv_cache_usage"], 0.5);
  EXPECT_EQ(stats["models"][0], "test-model");
}

TEST_F(ApiServerTest, GivesBrowsersThePage) {
  start();
  auto client = connect();
  const auto page = client.request("GET", "/", "", "Accept: text/html,*/*;q=0.8\r\n");
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page.header("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_EQ(client.request("GET", "/web/app.js").header("content-type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(client.request("GET", "/web/style.css").status, 200);
  EXPECT_EQ(client.request("GET", "/web/other.js").status, 404);
  EXPECT_EQ(client.request("GET", "/web/openapi.json").status, 404);
  EXPECT_EQ(client.request("GET", "/web/../api_server.cc").status, 404);
  EXPECT_THAT(client.request("GET", "/").body, HasSubstr("ok"));
}

TEST_F(ApiServerTest, DescribesItself) {
  start();
  const auto description = TestJson::parse(connect().request("GET", "/openapi.json").body);
  EXPECT_EQ(description["openapi"], "3.1.0");
  EXPECT_TRUE(description["paths"]["/v1/chat/completions"].contains("post"));
}

}  // namespace
}  // namespace gannet::server
