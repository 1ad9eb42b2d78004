#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/api_server.h"
#include "server/http_server.h"
#include "server/scripted_engine.h"
#include "server/test_client.h"

namespace gannet::server {

using TestJson = nlohmann::ordered_json;

// The whole server on a port of its own, with the small test tokenizer and an engine that answers from a script.
class ApiTest : public testing::Test {
 protected:
  static const text::Tokenizer& tokenizer() {
    static const auto* loaded = [] {
      auto tokenizer = text::Tokenizer::load(std::string(GANNET_TEST_DATA) + "/text/tokenizer-test.json");
      if (!tokenizer) ADD_FAILURE() << tokenizer.error().message;
      return std::make_unique<text::Tokenizer>(*std::move(tokenizer)).release();
    }();
    return *loaded;
  }

  void SetUp() override {
    model_.names = {"test-model", "alias"};
    model_.tokenizer = &tokenizer();
    model_.engine = &engine_;
    model_.created = 1700000000;
  }

  void TearDown() override {
    if (!server_) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }

  void start(HttpServerOptions options = {}, const std::string& api_key = "", bool ready = true) {
    if (!api_key.empty()) api_options_.api_keys.push_back(api_key);
    api_ = std::make_unique<ApiServer>(api_options_);
    if (ready) api_->start_serving(model_);
    options.gate = [this](const HttpRequest& head) { return api_->refuse(head); };
    auto server = HttpServer::listen(
        std::move(options), [this](const HttpRequest& request) { return api_->handle(request); }, ApiServer::error_page,
        [this](const RequestRecord& record) { api_->observe(record); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->run(); });
  }

  // What the engine generates: control tokens by their spelling, and an end-of-sentence behind it.
  void script(const std::string& text, bool end = true) {
    auto ids = tokenizer().encode(text);
    ASSERT_TRUE(ids);
    engine_.script = *std::move(ids);
    if (end) engine_.script.push_back(engine_.config().eos_token_id);
  }

  TestConnection connect() { return TestConnection(server_->port()); }

  TestJson post(const std::string& path, const TestJson& body, int expected_status = 200) {
    auto client = connect();
    const auto response = client.request("POST", path, body.dump());
    EXPECT_EQ(response.status, expected_status) << body << response.body;
    return TestJson::parse(response.body, nullptr, false);
  }

  // Events of a stream; comments are left out and the last must be [DONE], which is left out too.
  static std::vector<TestJson> events(const std::string& body) {
    std::vector<TestJson> parsed;
    bool done = false;
    size_t begin = 0;
    while (begin < body.size()) {
      const size_t end = body.find("\n\n", begin);
      const std::string event = body.substr(begin, end - begin);
      begin = end == std::string::npos ? body.size() : end + 2;
      if (event.starts_with(":")) continue;
      EXPECT_FALSE(done) << "an event after [DONE]: " << event;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      done = event == "data: [DONE]";
      if (!done) parsed.push_back(TestJson::parse(event.substr(6), nullptr, false));
    }
    EXPECT_TRUE(done) << body;
    return parsed;
  }

  std::vector<TestJson> stream(const std::string& path, TestJson body) {
    body["stream"] = true;
    auto client = connect();
    const auto response = client.request("POST", path, body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.header("content-type"), "text/event-stream");
    EXPECT_TRUE(response.complete);
    return events(response.body);
  }

  ScriptedEngine engine_{576};
  ServedModel model_;
  ApiOptions api_options_;  // set before start()
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

}  // namespace gannet::server
