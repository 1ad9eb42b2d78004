#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "server/test_client.h"
#include "server/worker_permits.h"

namespace gannet::server {
namespace {

using testing::HasSubstr;

// Counts that tests wait for: no test sleeps.
class Counter {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(kPatienceSeconds), [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// Streams what the test feeds.
struct Feed {
  std::mutex mutex;
  std::string data;
  bool complete = false;
  std::function<void()> wake;
  Counter started;
  Counter destroyed;

  void push(const std::string& text, bool end = false) {
    const std::lock_guard lock(mutex);
    data += text;
    complete = end;
    if (wake) wake();
  }
};

class FedStream : public StreamedAnswer {
 public:
  explicit FedStream(Feed& feed) : feed_(feed) {}
  ~FedStream() override {
    {
      const std::lock_guard lock(feed_.mutex);
      feed_.wake = nullptr;
    }
    feed_.destroyed.add();
  }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(feed_.mutex);
    feed_.wake = std::move(wake);
    feed_.started.add();
  }
  std::string content_type() const override { return "text/event-stream"; }
  bool pull(std::string& out) override {
    const std::lock_guard lock(feed_.mutex);
    out += std::exchange(feed_.data, {});
    return feed_.complete;
  }
  void keep_alive(std::string& out) override { out += ": waiting\n\n"; }

 private:
  Feed& feed_;
};

class FedWhole : public WholeAnswer {
 public:
  explicit FedWhole(Feed& feed) : stream_(feed), feed_(feed) {}
  void start(std::function<void()> wake) override { stream_.start(std::move(wake)); }
  std::optional<HttpResponse> poll() override {
    const std::lock_guard lock(feed_.mutex);
    if (!feed_.complete) return std::nullopt;
    HttpResponse response;
    response.body = feed_.data;
    return response;
  }

 private:
  FedStream stream_;
  Feed& feed_;
};

class FailingStream : public FedStream {
 public:
  using FedStream::FedStream;
  bool pull(std::string& out) override {
    FedStream::pull(out);
    if (out == "boom") throw std::runtime_error("boom");
    return false;
  }
};

class FailingWhole : public FedWhole {
 public:
  using FedWhole::FedWhole;
  std::optional<HttpResponse> poll() override { throw std::runtime_error("boom"); }
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    auto server = HttpServer::listen(
        std::move(options), [this](const HttpRequest& request) { return handle(request); },
        [](int status, const std::string& message, std::string_view) {
          HttpResponse response;
          response.status = status;
          response.body = message;
          return response;
        },
        [this](const RequestRecord& record) {
          const std::lock_guard lock(records_mutex_);
          records_.push_back(record);
          recorded_.add();
        });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!server_) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }

  Reply handle(const HttpRequest& request) {
    HttpResponse response;
    response.content_type = "text/plain";
    if (request.path == "/stream") return std::make_unique<FedStream>(feed_);
    if (request.path == "/failing-stream") return std::make_unique<FailingStream>(feed_);
    if (request.path == "/failing-whole") return std::make_unique<FailingWhole>(feed_);
    if (request.path == "/whole") return std::make_unique<FedWhole>(feed_);
    if (request.path == "/slow") {
      slow_.add();
      EXPECT_TRUE(go_on_.wait_for(1));
    }
    if (request.path == "/pause") {
      const WorkerPause pause;
      slow_.add();
      EXPECT_TRUE(go_on_.wait_for(1));
    }
    if (request.path == "/throw") throw std::runtime_error("boom");
    if (request.path == "/large") response.body = std::string(8 << 20, 'x');
    if (request.path == "/echo") {
      response.body = request.method + " " + request.query + " " + std::string(request.header("x-test")) + " " +
                      std::to_string(request.body.size()) + " " + request.body.substr(0, 20);
    }
    return response;
  }

  TestConnection connect() { return TestConnection(server_->port()); }

  // The record of the request of that number, counted from 1.
  RequestRecord record(int number) {
    EXPECT_TRUE(recorded_.wait_for(number));
    const std::lock_guard lock(records_mutex_);
    return records_.at(static_cast<size_t>(number - 1));
  }

  std::mutex records_mutex_;
  std::vector<RequestRecord> records_;
  Counter recorded_;
  Feed feed_;
  Counter slow_;   // requests to /slow
  Counter go_on_;  // lets them through
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  auto client = connect();
  const auto first = client.request("GET", "/echo?a=1&b", "", "X-Test: value\r\n");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "GET a=1&b value 0 ");
  EXPECT_EQ(first.header("connection"), "keep-alive");
  EXPECT_EQ(client.request("POST", "/echo", "hello").body, "POST   5 hello");
  const auto head = client.request("HEAD", "/echo");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "9");
  EXPECT_EQ(client.request("GET", "http://elsewhere/echo").body, "GET   0 ");
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  auto client = connect();
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += TestConnection::request_text("POST", "/echo", "n" + std::to_string(i));
  client.send(requests);
  for (int i = 0; i < 50; ++i) EXPECT_THAT(client.read_response().body, HasSubstr("n" + std::to_string(i)));
}

TEST_F(HttpServerTest, KeepsTheNextRequestThatComesDuringAStream) {
  start();
  auto client = connect();
  client.send(TestConnection::request_text("GET", "/stream"));
  EXPECT_EQ(client.read_head().status, 200);
  ASSERT_TRUE(feed_.started.wait_for(1));
  client.send(TestConnection::request_text("GET", "/echo?next"));
  feed_.push("one");
  EXPECT_EQ(client.read_chunk(), "one");
  feed_.push("two", true);
  EXPECT_EQ(client.read_chunk(), "two");
  EXPECT_EQ(client.read_chunk(), "");
  EXPECT_EQ(client.read_response().body, "GET next  0 ");
}

TEST_F(HttpServerTest, AnswersWholeAnswersWhenTheyAreComplete) {
  start();
  auto client = connect();
  client.send(TestConnection::request_text("POST", "/whole", "{}"));
  ASSERT_TRUE(feed_.started.wait_for(1));
  feed_.push("half");
  feed_.push(" and half", true);
  EXPECT_EQ(client.read_response().body, "half and half");
  EXPECT_EQ(client.request("GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, GivesEveryRequestAnId) {
  start();
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/echo", "", "X-Request-Id: mine-1\r\n").header("x-request-id"), "mine-1");
  EXPECT_EQ(client.request("GET", "/echo", "", "X-Request-Id: mine-1\r\n").header("request-id"), "mine-1");
  const auto made = client.request("GET", "/echo").header("x-request-id");
  EXPECT_EQ(made.size(), 36U);
  EXPECT_NE(client.request("POST", "/echo", "x").header("x-request-id"), made);
  for (const std::string& bad :
       {std::string("with space"), std::string(129, 'x'), std::string("q\"uote"), std::string()}) {
    const auto id = client.request("GET", "/echo", "", "X-Request-Id: " + bad + "\r\n").header("x-request-id");
    EXPECT_TRUE(id.starts_with("req-")) << id;
  }
  auto broken = connect();
  broken.send("nonsense\r\n\r\n");
  EXPECT_TRUE(broken.read_response().header("x-request-id").starts_with("req-"));
}

TEST_F(HttpServerTest, RecordsEveryRequest) {
  start();
  auto client = connect();
  client.request("POST", "/echo?secret", "hello", "X-Request-Id: mine\r\n");
  const auto first = record(1);
  EXPECT_EQ(first.id, "mine");
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.path, "/echo");
  EXPECT_EQ(first.remote, "127.0.0.1");
  EXPECT_EQ(first.status, 200);
  EXPECT_GT(first.bytes, 100U);
  EXPECT_GE(first.seconds, 0);

  auto broken = connect();
  broken.send("nonsense\r\n\r\n");
  broken.read_response();
  EXPECT_EQ(record(2).status, 400);

  auto leaver = connect();
  leaver.send(TestConnection::request_text("GET", "/stream"));
  ASSERT_TRUE(feed_.started.wait_for(1));
  leaver.close();
  EXPECT_EQ(record(3).status, kClientGone);
}

TEST_F(HttpServerTest, RecordsAnswersThatFail) {
  start();
  auto whole = connect();
  EXPECT_EQ(whole.request("POST", "/failing-whole", "x").status, 500);
  EXPECT_EQ(record(1).status, 500);
  EXPECT_EQ(whole.request("GET", "/echo").status, 200) << "the connection goes on";

  auto stream = connect();
  stream.send(TestConnection::request_text("GET", "/failing-stream", "", "X-Request-Id: mine\r\n"));
  EXPECT_EQ(stream.read_head().status, 200);
  ASSERT_TRUE(feed_.started.wait_for(2));
  feed_.push("begin");
  EXPECT_EQ(stream.read_chunk(), "begin");
  feed_.push("boom");
  EXPECT_EQ(stream.read_chunk(), std::nullopt);
  EXPECT_EQ(record(3).status, 500);
  EXPECT_EQ(record(3).id, "mine");
  EXPECT_EQ(record(3).path, "/failing-stream");
}

TEST_F(HttpServerTest, LetsWebPagesInOnlyWhenTheyAreListed) {
  HttpServerOptions options;
  options.allowed_origins = {"https://good.example"};
  start(options);
  auto client = connect();
  const auto good = client.request("POST", "/echo", "x", "Origin: https://good.example\r\n");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.header("access-control-allow-origin"), "https://good.example");
  const auto preflight = client.request("OPTIONS", "/echo", "",
                                        "Origin: https://good.example\r\nAccess-Control-Request-Method: POST\r\n"
                                        "Access-Control-Request-Headers: x-anything\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "x-anything");

  for (const char* origin : {"https://evil.example", "null", "https://good.example.evil", "http://good.example"}) {
    const auto response = client.request("POST", "/echo", "x", std::string("Origin: ") + origin + "\r\n");
    EXPECT_EQ(response.status, 403) << origin;
    EXPECT_EQ(response.header("access-control-allow-origin"), "") << origin;
  }
  EXPECT_EQ(client.request("GET", "/echo", "", "Origin: https://evil.example\r\n").status, 200);
  EXPECT_EQ(client.request("POST", "/echo", "x", "Origin: http://test\r\n").status, 200) << "its own page";
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  start();
  auto client = connect();
  client.send("GET /echo HTTP/1.0\r\n\r\n");
  const auto response = client.read_response();
  EXPECT_EQ(response.body, "GET   0 ");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_TRUE(client.at_end());

  auto kept = connect();
  kept.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.read_response().header("connection"), "keep-alive");

  auto streamed = connect();
  feed_.push("all of it", true);
  streamed.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto stream = streamed.read_response();
  EXPECT_EQ(stream.header("transfer-encoding"), "");
  EXPECT_EQ(stream.body, "all of it");
}

TEST_F(HttpServerTest, TakesChunkedBodies) {
  start();
  auto client = connect();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "POST   5 abcde");
}

TEST_F(HttpServerTest, AnswersExpectContinue) {
  start();
  auto client = connect();
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.read_through("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hello");
  EXPECT_EQ(client.read_response().body, "POST   5 hello");

  auto refused = connect();
  refused.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: miracles\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(refused.read_response().status, 417);
}

TEST_F(HttpServerTest, AnswersToItsOwnNamesOnly) {
  HttpServerOptions options;
  options.allowed_hosts = {"localhost", "api.example"};
  start(options);
  const auto status = [this](const std::string& host) {
    auto client = connect();
    client.send("GET /echo HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.read_response().status;
  };
  EXPECT_EQ(status("localhost:8000"), 200);
  EXPECT_EQ(status("API.example"), 200);
  EXPECT_EQ(status("evil.example:8000"), 403);
  auto client = connect();
  const auto refused = client.request("POST", "/echo", "x", "Origin: http://test\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("Host is 'test'"));
  EXPECT_THAT(refused.body, HasSubstr("localhost, api.example only. --allowed-hosts"));
}

TEST(HttpServer, GuardsALoopbackAddress) {
  HttpServerOptions options;
  options.guards_loopback = true;
  auto server = HttpServer::listen(
      std::move(options), [](const HttpRequest&) { return HttpResponse(); },
      [](int status, const std::string&, std::string_view) {
        HttpResponse response;
        response.status = status;
        return response;
      });
  ASSERT_TRUE(server);
  std::thread thread([&] { (*server)->run(); });
  for (const auto& [host, status] : {std::pair("evil.example", 403), std::pair("127.0.0.1:8000", 200)}) {
    TestConnection client((*server)->port());
    client.send(std::string("GET /x HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    EXPECT_EQ(client.read_response().status, status) << host;
  }
  (*server)->stop();
  thread.join();
}

TEST_F(HttpServerTest, WorkersThatPauseHoldUpNobody) {
  HttpServerOptions options;
  options.worker_threads = 2;
  options.paused_threads = 5;
  start(options);
  std::vector<TestConnection> paused;
  for (int i = 0; i < 5; ++i) {
    paused.push_back(connect());
    paused.back().send(TestConnection::request_text("POST", "/pause", "x"));
  }
  ASSERT_TRUE(slow_.wait_for(5));
  auto client = connect();
  EXPECT_EQ(client.request("POST", "/echo", "hello").body, "POST   5 hello");
  go_on_.add();
  for (auto& one : paused) EXPECT_EQ(one.read_response().status, 200);
}

TEST_F(HttpServerTest, TurnsRequestsAwayBeforeTheirBody) {
  HttpServerOptions options;
  options.gate = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(head.remote, "127.0.0.1");
    if (head.header("x-test") == "boom") throw std::runtime_error("boom");
    if (head.header("x-test") == "in") return std::nullopt;
    return HttpResponse{.status = 401, .content_type = "text/plain", .body = "no", .headers = {}};
  };
  start(options);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: t\r\n";

  auto large = connect();
  large.send(head + "Content-Length: 33554432\r\n\r\n");  // and nothing of it
  const auto refused = large.read_response();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("connection"), "close");
  EXPECT_TRUE(large.at_end());
  EXPECT_EQ(record(1).status, 401);
  EXPECT_EQ(record(1).path, "/echo");

  // A client that sends it all before it reads still gets the answer.
  auto sender = connect();
  sender.send(head + "Content-Length: 33554432\r\n\r\n" + std::string(4 << 20, 'x'));
  EXPECT_EQ(sender.read_response().status, 401);

  auto asking = connect();
  asking.send(head + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(asking.read_response().status, 401) << "and not 100";

  auto chunked = connect();
  chunked.send(head + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(chunked.read_response().header("connection"), "close");

  auto failing = connect();
  EXPECT_EQ(failing.request("POST", "/echo", "x", "X-Test: boom\r\n").status, 500);
}

TEST_F(HttpServerTest, PassesOverASmallBodyOfWhoIsTurnedAway) {
  HttpServerOptions options;
  options.gate = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.header("x-test") == "in") return std::nullopt;
    return HttpResponse{.status = 401, .content_type = "text/plain", .body = "no", .headers = {}};
  };
  start(options);
  auto client = connect();
  for (int i = 0; i < 3; ++i) {
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\n");
    const auto refused = client.read_response();
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.header("connection"), "keep-alive");
    client.send(std::string(60000, 'x'));
    EXPECT_EQ(client.request("POST", "/echo", "hello", "X-Test: in\r\n").body, "POST  in 5 hello");
  }
}

TEST_F(HttpServerTest, RefusesWhatIsTooLarge) {
  HttpServerOptions options;
  options.body_limit = 1 << 20;
  start(options);
  auto body = connect();
  body.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1048577\r\n\r\n");
  const auto refused = body.read_response();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr("1048576 bytes"));
  EXPECT_TRUE(body.at_end());

  // A client that sends it all before it reads still gets the answer.
  auto eager = connect();
  eager.send(TestConnection::request_text("POST", "/echo", std::string(3 << 20, 'x')));
  EXPECT_EQ(eager.read_response().status, 413);

  auto chunked = connect();
  chunked.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  chunked.send("200000\r\n" + std::string(0x200000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_response().status, 413);

  auto header = connect();
  header.send("GET /echo HTTP/1.1\r\nHost: t\r\nX-Long: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(header.read_response().status, 431);

  auto target = connect();
  target.send("GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(target.read_response().status, 431);

  auto fits = connect();
  EXPECT_EQ(fits.request("POST", "/echo", std::string(1 << 20, 'x')).status, 200);
  EXPECT_EQ(fits.request("GET", "/echo", "", "X-Long: " + std::string(60'000, 'x') + "\r\n").status, 200);
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  start();
  const std::vector<std::string> requests = {
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not http\r\n\r\n",
      "GET /\r\n\r\n",
      "GET / HTTP/9.9\r\nHost: t\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET /echo HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: t\r\nbad header\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5x\r\n\r\nhello",
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
  };
  for (const auto& request : requests) {
    auto client = connect();
    client.send(request);
    EXPECT_EQ(client.read_response().status, 400) << request;
    EXPECT_TRUE(client.at_end()) << request;
  }
  EXPECT_EQ(connect().request("GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, SurvivesClientsThatGoAwayAtAnyPoint) {
  start();
  const std::string request = TestConnection::request_text("POST", "/echo", "hello");
  for (size_t length = 0; length <= request.size(); ++length) {
    auto client = connect();
    client.send(request.substr(0, length));
    if (length % 2) client.reset();
  }
  EXPECT_EQ(connect().request("GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, AnswersErrorsToAClientThatHasClosedItsSide) {
  start();
  auto client = connect();
  client.send(TestConnection::request_text("POST", "/echo", "hello"));
  client.shut_down_writing();
  EXPECT_EQ(client.read_response().body, "POST   5 hello");
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpServerTest, AnswersAnExceptionWith500) {
  start();
  auto client = connect();
  EXPECT_EQ(client.request("GET", "/throw").status, 500);
  EXPECT_EQ(client.request("POST", "/throw", "x").status, 500);
  EXPECT_EQ(client.request("GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, GivesUpOnSlowRequests) {
  HttpServerOptions options;
  options.header_timeout = std::chrono::milliseconds(30);
  options.body_timeout = std::chrono::milliseconds(30);
  options.idle_timeout = std::chrono::milliseconds(60);
  start(options);
  auto header = connect();
  header.send("GET /echo HTTP/1.1\r\nHo");
  EXPECT_EQ(header.read_response().status, 408);
  auto body = connect();
  body.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhe");
  EXPECT_EQ(body.read_response().status, 408);
  auto idle = connect();
  EXPECT_TRUE(idle.at_end());
}

TEST_F(HttpServerTest, GivesUpOnAClientThatNeverStopsSending) {
  HttpServerOptions options;
  options.linger_timeout = std::chrono::milliseconds(30);
  start(options);
  auto client = connect();
  client.send("GET / HTTP/9.9\r\n\r\n");
  const std::string junk(64 << 10, 'x');
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  bool taken = true;
  while (taken && std::chrono::steady_clock::now() < last) taken = client.send(junk);
  EXPECT_FALSE(taken);
}

TEST_F(HttpServerTest, DestroysTheAnswerWhenTheClientGoes) {
  start();
  int gone = 0;
  for (const char* path : {"/stream", "/whole"}) {
    for (const char* body : {"", "{}"}) {
      for (int way = 0; way < 3; ++way) {
        auto client = connect();
        client.send(TestConnection::request_text("POST", path, body));
        ASSERT_TRUE(feed_.started.wait_for(++gone));
        if (way == 0) client.close();
        if (way == 1) client.reset();
        if (way == 2) client.shut_down_writing();
        EXPECT_TRUE(feed_.destroyed.wait_for(gone)) << path << body << way;
      }
    }
  }
}

TEST_F(HttpServerTest, CutsOffAClientThatSendsTooMuchWhileItWaits) {
  start();
  int gone = 0;
  for (const char* path : {"/stream", "/whole"}) {
    auto client = connect();
    client.send(TestConnection::request_text("POST", path, "{}"));
    ASSERT_TRUE(feed_.started.wait_for(++gone));
    client.send(std::string(256 << 10, 'x'));
    EXPECT_TRUE(feed_.destroyed.wait_for(gone)) << path;
  }
}

TEST_F(HttpServerTest, DestroysTheAnswerOfASlowReader) {
  HttpServerOptions options;
  options.write_timeout = std::chrono::milliseconds(50);
  start(options);
  TestConnection client(server_->port(), 4096);
  client.send(TestConnection::request_text("GET", "/stream"));
  ASSERT_TRUE(feed_.started.wait_for(1));
  feed_.push(std::string(32 << 20, 'x'));
  EXPECT_TRUE(feed_.destroyed.wait_for(1));
}

TEST_F(HttpServerTest, SlowReadersBlockNobody) {
  start();
  std::vector<TestConnection> slow;
  for (int i = 0; i < 20; ++i) {
    slow.emplace_back(server_->port(), 4096);
    slow.back().send(TestConnection::request_text("GET", "/large"));
    EXPECT_EQ(slow.back().read_head().status, 200);
  }
  EXPECT_EQ(connect().request("GET", "/echo").status, 200);
  EXPECT_EQ(connect().request("POST", "/echo", "x").status, 200);
}

TEST_F(HttpServerTest, SendsSignsOfLifeInASilentStream) {
  HttpServerOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  auto client = connect();
  client.send(TestConnection::request_text("GET", "/stream"));
  EXPECT_EQ(client.read_head().status, 200);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_chunk(), ": waiting\n\n");
}

TEST_F(HttpServerTest, HoldsManyStreamsAtOnce) {
  start();
  constexpr int kStreams = 300;
  std::vector<TestConnection> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().connected());
    clients.back().send(TestConnection::request_text("GET", "/whole"));
  }
  ASSERT_TRUE(feed_.started.wait_for(kStreams));
  EXPECT_EQ(server_->open_connections(), kStreams);
  EXPECT_EQ(connect().request("GET", "/echo").status, 200);
  clients.clear();
  EXPECT_TRUE(feed_.destroyed.wait_for(kStreams));
}

TEST_F(HttpServerTest, AnswersOverloadWhenItHasTooManyConnections) {
  HttpServerOptions options;
  options.max_connections = 2;
  start(options);
  auto first = connect();
  auto second = connect();
  EXPECT_EQ(first.request("GET", "/echo").status, 200);
  EXPECT_EQ(second.request("GET", "/echo").status, 200);
  auto third = connect();
  EXPECT_EQ(third.read_response().status, 503);
  EXPECT_EQ(first.request("GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, DrainsAndEnds) {
  start();
  auto idle = connect();
  EXPECT_EQ(idle.request("GET", "/echo").status, 200);
  auto busy = connect();
  busy.send(TestConnection::request_text("GET", "/stream"));
  EXPECT_EQ(busy.read_head().status, 200);
  ASSERT_TRUE(feed_.started.wait_for(1));

  server_->drain(std::chrono::seconds(kPatienceSeconds));
  EXPECT_TRUE(idle.at_end());
  auto late = connect();
  EXPECT_EQ(late.request("GET", "/echo").header("connection"), "close");
  EXPECT_TRUE(late.at_end());
  late.close();
  feed_.push("the end", true);
  EXPECT_EQ(busy.read_chunk(), "the end");
  EXPECT_EQ(busy.read_chunk(), "");
  busy.close();
  thread_.join();
  thread_ = std::thread([] {});
}

TEST_F(HttpServerTest, CutsOffWhatIsNotDrainedInTime) {
  start();
  auto busy = connect();
  busy.send(TestConnection::request_text("GET", "/stream"));
  EXPECT_EQ(busy.read_head().status, 200);
  ASSERT_TRUE(feed_.started.wait_for(1));
  server_->drain(std::chrono::milliseconds(20));
  thread_.join();
  EXPECT_TRUE(busy.at_end());
  EXPECT_TRUE(feed_.destroyed.wait_for(1));
  thread_ = std::thread([] {});
}

TEST_F(HttpServerTest, EndsWhileAWorkerIsBusy) {
  start();
  auto busy = connect();
  busy.send(TestConnection::request_text("POST", "/slow", "x"));
  ASSERT_TRUE(slow_.wait_for(1));
  server_->drain(std::chrono::milliseconds(20));
  thread_.join();
  EXPECT_FALSE(TestConnection(server_->port()).connected());
  EXPECT_FALSE(server_->finish_workers(std::chrono::milliseconds(20)));
  go_on_.add();
  EXPECT_TRUE(server_->finish_workers(std::chrono::seconds(kPatienceSeconds)));
  thread_ = std::thread([] {});
}

TEST(HttpServer, NamesTheAddressItCannotUse) {
  const auto listen = [](const std::string& host, uint16_t port) {
    HttpServerOptions options;
    options.host = host;
    options.port = port;
    return HttpServer::listen(
        options, [](const HttpRequest&) { return HttpResponse(); },
        [](int, const std::string&, std::string_view) { return HttpResponse(); });
  };
  const auto first = listen("127.0.0.1", 0);
  ASSERT_TRUE(first);
  const auto second = listen("127.0.0.1", (*first)->port());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::failed);
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("127.0.0.1:{}", (*first)->port())));
  EXPECT_FALSE(listen("no-such-host.invalid", 0));
  EXPECT_THAT((*first)->url(), HasSubstr("http://127.0.0.1:"));
}

}  // namespace
}  // namespace gannet::server
