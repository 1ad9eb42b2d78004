#include "server/http_client.h"

#include <gmock/gmock.h>

#include "server/api_test_fixture.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

class HttpClientTest : public ApiTest {
 protected:
  Url url() { return Url{.host = "127.0.0.1", .port = server_->port(), .path = ""}; }
};

TEST(Url, IsTakenApart) {
  const auto check = [](const char* text, const char* host, int port, const char* path) {
    const auto url = parse_url(text);
    ASSERT_TRUE(url) << text;
    EXPECT_EQ(url->host, host) << text;
    EXPECT_EQ(url->port, port) << text;
    EXPECT_EQ(url->path, path) << text;
  };
  check("http://localhost:8000", "localhost", 8000, "");
  check("http://localhost", "localhost", 80, "");
  check("http://10.0.0.1:1/v1/", "10.0.0.1", 1, "/v1");
  check("http://[::1]:8000/a/b", "::1", 8000, "/a/b");
  check("http://[::1]", "::1", 80, "");
  EXPECT_EQ(parse_url("http://[::1]:8000/v1")->text(), "http://[::1]:8000/v1");
}

TEST(Url, IsRefused) {
  for (const char* text : {"", "localhost:8000", "ftp://x", "http://", "http://:80", "http://h:", "http://h:0",
                           "http://h:65536", "http://h:8x", "http://[::1", "http://[::1]8", "http://a b", "http://u@h",
                           "http://h/a\r\nX: y", "http://h?query"}) {
    const auto url = parse_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().kind, ErrorKind::invalid_input);
  }
  EXPECT_THAT(parse_url("https://h").error().message, HasSubstr("https is not supported"));
}

TEST_F(HttpClientTest, CollectsAResponse) {
  start();
  ClientRequest request;
  request.path = "/v1/models";
  const auto response = send_request(url(), request);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 200);
  EXPECT_THAT(response->body, HasSubstr("test-model"));
}

TEST_F(HttpClientTest, CollectsRefusalsEvenOfStreams) {
  start();
  ClientRequest request;
  request.path = "/nowhere";
  request.on_data = [](std::string_view) { ADD_FAILURE() << "an error is no data"; };
  const auto response = send_request(url(), request);
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 404);
  EXPECT_THAT(response->body, HasSubstr("/nowhere"));
}

TEST_F(HttpClientTest, StopsWhenItIsTold) {
  engine_.by_steps = true;
  script("Hello");
  start();
  ClientRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = R"({"prompt": "x", "stream": true})";
  request.keep_going = [this] { return engine_.unfinished() == 0; };
  const auto response = send_request(url(), request);
  ASSERT_TRUE(response);
  EXPECT_TRUE(response->cancelled);
  EXPECT_TRUE(engine_.wait_for_cancelled(1));
}

TEST_F(HttpClientTest, SaysThatNobodyAnswers) {
  start();
  const Url gone = url();
  server_->stop();
  thread_.join();
  server_.reset();
  const auto response = send_request(gone, {});
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace gannet::server
