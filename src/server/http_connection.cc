#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

// g++ 12 miscompiles some temporaries inside a co_await expression (lambdas, aggregates, conditionals): here every
// operand of co_await is a plain call on named objects.

namespace gannet::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadPiece = 4096;
constexpr size_t kWriteSlice = 256 << 10;     // written under one deadline
constexpr size_t kPipelinedLimit = 64 << 10;  // bytes of later requests taken while one is being answered; more end it
constexpr auto kDeadlineRepeat = std::chrono::milliseconds(20);
constexpr int kBodyTimeouts = 20;  // a whole body may take that many body_timeouts

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Path and query of a request target; the absolute form that proxies send is cut to its path.
void split_target(std::string_view target, HttpRequest& request) {
  if (const auto scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const auto slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const auto question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
}

HttpRequest take_request(http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  split_target(message.target(), request);
  for (const auto& field : message) {
    request.headers.emplace_back(lower_case(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

struct Refusal {
  int status = 400;
  std::string message;
};

Refusal refusal_of(error_code error, const HttpServerOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, fmt::format("the request's headers are larger than {} bytes", options.header_limit)};
  }
  if (error == http::error::body_limit) {
    return {413, fmt::format("the request's body is larger than {} bytes", options.body_limit)};
  }
  return {400, fmt::format("this is not an HTTP/1.1 request that can be understood: {}", error.message())};
}

std::string response_head(const HttpResponse& response, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: gannet\r\n", response.status,
                                 std::string_view(http::obsolete_reason(http::int_to_status(response.status))));
  if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head;
}

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionContext& context, tcp::socket socket)
      : context_(context),
        socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        signal_timer_(socket_.get_executor()),
        buffer_(context.options.header_limit + 2 * kPipelinedLimit) {}

  static awaitable<void> run(std::shared_ptr<Connection> self, bool overloaded);
  // Called when run() has ended; `error` is what it threw, if anything.
  void finish(const std::exception_ptr& error);
  void drain();
  void abort();

 private:
  using Parser = http::request_parser<http::string_body>;
  struct Job {
    HttpRequest request;
    Reply reply;
    bool done = false;
  };

  awaitable<bool> serve_one();
  awaitable<bool> wait_for_request();
  awaitable<bool> read_head(Parser& parser);
  awaitable<bool> read_body(Parser& parser);
  awaitable<Reply> handle(HttpRequest request);
  awaitable<void> send(Reply& reply);
  awaitable<void> send_response(const HttpResponse& response);
  awaitable<void> send_whole(WholeAnswer& answer);
  awaitable<void> send_stream(StreamedAnswer& answer);
  awaitable<void> send_pieces(StreamedAnswer& answer, bool chunked);
  awaitable<bool> write_all(std::string_view data);
  awaitable<void> refuse(int status, std::string message);
  awaitable<void> linger();

  Reply call_handler(const HttpRequest& request) const;
  std::function<void()> wake_up();

  void arm_deadline(std::chrono::milliseconds time);
  void wait_for_deadline(std::chrono::milliseconds time);
  void disarm_deadline();
  void close();
  void signal();
  awaitable<void> wait_signal(Clock::time_point until);
  void start_watch();
  void on_watched(error_code error, size_t bytes);
  awaitable<void> end_watch();

  ConnectionContext& context_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;  // a deadline that fired late finds another number and does nothing
  bool timed_out_ = false;
  asio::steady_timer signal_timer_;
  bool signalled_ = false;
  boost::beast::flat_buffer buffer_;

  bool idle_ = false;      // between two requests
  bool served_ = false;    // had at least one request
  bool gone_ = false;      // the client closed its side
  bool aborted_ = false;   // we cut it off
  bool broken_ = false;    // an answer could not be written whole
  bool watching_ = false;  // a read is pending that tells when the client goes
  bool end_watch_ = false;
  bool streaming_ = false;

  // Of the request being answered.
  bool keep_alive_ = false;
  bool head_only_ = false;  // HEAD: headers without the body
  bool http11_ = true;
};

// ---- life of a connection

awaitable<void> Connection::run(std::shared_ptr<Connection> self, bool overloaded) {
  if (overloaded) {
    std::string message = "the server has as many connections as it can hold; try again later";
    co_await self->refuse(503, std::move(message));
  } else {
    while (co_await self->serve_one()) {
    }
  }
}

void Connection::finish(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    spdlog::error("a connection failed inside the server: {}", exception.what());
  }
  close();
  context_.connections.erase(this);
  context_.open = context_.connections.size();
  if (context_.connections.empty() && context_.on_last_closed) context_.on_last_closed();
}

void Connection::drain() {
  if (idle_) abort();
}

void Connection::abort() {
  aborted_ = true;
  close();
  signal();
}

// One request and its answer; false when the connection is over.
awaitable<bool> Connection::serve_one() {
  if (!co_await wait_for_request()) co_return false;
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(context_.options.header_limit));
  parser.body_limit(context_.options.body_limit);
  if (!co_await read_head(parser)) co_return false;
  if (!co_await read_body(parser)) co_return false;

  keep_alive_ = parser.get().keep_alive();
  http11_ = parser.get().version() >= 11;
  head_only_ = parser.get().method() == http::verb::head;
  served_ = true;
  HttpRequest request = take_request(parser.get());
  Reply reply = co_await handle(std::move(request));
  co_await send(reply);
  if (gone_ || aborted_ || broken_) co_return false;
  if (keep_alive_) co_return true;
  co_await linger();
  co_return false;
}

awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  // While the server drains, a new connection may still ask once, for instance whether the server is ready.
  if (context_.draining && served_) co_return false;
  idle_ = true;
  arm_deadline(context_.draining ? context_.options.linger_timeout : context_.options.idle_timeout);
  const auto result = co_await socket_.async_read_some(buffer_.prepare(kReadPiece), kAwait);
  disarm_deadline();
  idle_ = false;
  buffer_.commit(std::get<1>(result));
  co_return !std::get<0>(result);
}

// Reads the request line and headers; false when the connection is over, after an answer if there is one to give.
awaitable<bool> Connection::read_head(Parser& parser) {
  arm_deadline(context_.options.header_timeout);
  const auto result = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
  disarm_deadline();
  const error_code error = std::get<0>(result);
  if (timed_out_) {
    std::string message =
        fmt::format("the request's headers did not arrive within {} ms", context_.options.header_timeout.count());
    co_await refuse(408, std::move(message));
    co_return false;
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message || aborted_) co_return false;
  if (error) {
    if (error.category() != http::make_error_code(http::error::bad_method).category()) co_return false;
    Refusal refusal = refusal_of(error, context_.options);
    co_await refuse(refusal.status, std::move(refusal.message));
    co_return false;
  }
  if (parser.get().version() >= 11 && parser.get().count(http::field::host) != 1) {
    std::string message = "an HTTP/1.1 request must have exactly one Host header";
    co_await refuse(400, std::move(message));
    co_return false;
  }
  co_return true;
}

awaitable<bool> Connection::read_body(Parser& parser) {
  const auto expect = lower_case(parser.get()[http::field::expect]);
  if (!expect.empty() && expect != "100-continue") {
    std::string message = "the Expect header must be '100-continue'";
    co_await refuse(417, std::move(message));
    co_return false;
  }
  if (!expect.empty() && parser.get().version() >= 11 && !parser.is_done() && buffer_.size() == 0) {
    if (!co_await write_all("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  parser.eager(true);
  const auto last = Clock::now() + kBodyTimeouts * context_.options.body_timeout;
  while (!parser.is_done()) {
    arm_deadline(context_.options.body_timeout);
    const auto result = co_await http::async_read_some(socket_, buffer_, parser, kAwait);
    disarm_deadline();
    const error_code error = std::get<0>(result);
    if (timed_out_ || Clock::now() > last) {
      std::string message = "the request's body did not arrive in time";
      co_await refuse(408, std::move(message));
      co_return false;
    }
    if (!error) continue;
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      Refusal refusal = refusal_of(error, context_.options);
      co_await refuse(refusal.status, std::move(refusal.message));
    }
    co_return false;
  }
  co_return true;
}

// ---- handling

Reply Connection::call_handler(const HttpRequest& request) const {
  try {
    return context_.handler(request);
  } catch (const std::exception& error) {
    spdlog::error("{} {} failed inside the server: {}", request.method, request.path, error.what());
    return context_.error_page(500, "the server failed while it handled this request");
  }
}

awaitable<Reply> Connection::handle(HttpRequest request) {
  if (request.body.empty()) co_return call_handler(request);
  auto job = std::make_shared<Job>();
  job->request = std::move(request);
  auto work = [self = shared_from_this(), job] {
    BusyWorkers& busy = self->context_.busy;
    busy.add(1);
    job->reply = self->call_handler(job->request);
    busy.add(-1);
    auto deliver = [self, job] {
      job->done = true;
      self->signal();
    };
    asio::post(self->socket_.get_executor(), std::move(deliver));
  };
  asio::post(*context_.workers, std::move(work));
  start_watch();
  while (!job->done && !aborted_) co_await wait_signal(Clock::time_point::max());
  co_await end_watch();
  // An answer that comes too late is destroyed with the job.
  if (!job->done) co_return HttpResponse();
  co_return std::move(job->reply);
}

std::function<void()> Connection::wake_up() {
  return [weak = weak_from_this(), executor = socket_.get_executor()] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->signal();
    });
  };
}

// ---- answers

awaitable<void> Connection::send(Reply& reply) {
  if (aborted_) co_return;
  if (const auto* response = std::get_if<HttpResponse>(&reply)) {
    co_await send_response(*response);
  } else if (gone_) {
    co_return;
  } else if (const auto* whole = std::get_if<std::unique_ptr<WholeAnswer>>(&reply)) {
    co_await send_whole(**whole);
  } else {
    co_await send_stream(*std::get<std::unique_ptr<StreamedAnswer>>(reply));
  }
}

awaitable<void> Connection::send_response(const HttpResponse& response) {
  keep_alive_ = keep_alive_ && !context_.draining;
  std::string text = response_head(response, keep_alive_);
  text += fmt::format("Content-Length: {}\r\n\r\n", response.body.size());
  if (!head_only_) text += response.body;
  broken_ = !co_await write_all(text);
}

awaitable<void> Connection::send_whole(WholeAnswer& answer) {
  answer.start(wake_up());
  start_watch();
  std::optional<HttpResponse> response = answer.poll();
  while (!response && !gone_ && !aborted_) {
    co_await wait_signal(Clock::time_point::max());
    response = answer.poll();
  }
  co_await end_watch();
  if (response && !aborted_) co_await send_response(*response);
}

awaitable<void> Connection::send_stream(StreamedAnswer& answer) {
  const bool chunked = http11_;
  keep_alive_ = keep_alive_ && chunked && !context_.draining;
  HttpResponse response;
  response.content_type = answer.content_type();
  response.headers = answer.headers();
  std::string head = response_head(response, keep_alive_);
  head += chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  broken_ = !co_await write_all(head);
  if (broken_ || head_only_) co_return;

  answer.start(wake_up());
  streaming_ = true;
  start_watch();
  co_await send_pieces(answer, chunked);
  streaming_ = false;
  co_await end_watch();
}

awaitable<void> Connection::send_pieces(StreamedAnswer& answer, bool chunked) {
  auto last_write = Clock::now();
  bool complete = false;
  while (!complete && !gone_ && !aborted_ && !broken_) {
    std::string piece;
    complete = answer.pull(piece);
    const auto next_sign = last_write + context_.options.keep_alive_interval;
    if (piece.empty() && !complete) {
      if (Clock::now() < next_sign) {
        co_await wait_signal(next_sign);
        continue;
      }
      piece = answer.keep_alive();
      last_write = Clock::now();
    }
    std::string framed;
    if (!chunked) {
      framed = std::move(piece);
    } else {
      if (!piece.empty()) framed = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
      if (complete) framed += "0\r\n\r\n";
    }
    if (framed.empty()) continue;
    broken_ = !co_await write_all(framed);
    last_write = Clock::now();
  }
}

awaitable<bool> Connection::write_all(std::string_view data) {
  while (!data.empty()) {
    const auto slice = data.substr(0, kWriteSlice);
    arm_deadline(context_.options.write_timeout);
    const auto result = co_await asio::async_write(socket_, asio::buffer(slice.data(), slice.size()), kAwait);
    disarm_deadline();
    if (std::get<0>(result)) co_return false;
    data.remove_prefix(slice.size());
  }
  co_return true;
}

// Answers a request that HTTP itself cannot take and ends the connection.
awaitable<void> Connection::refuse(int status, std::string message) {
  timed_out_ = false;
  keep_alive_ = false;
  const HttpResponse response = context_.error_page(status, message);
  co_await send_response(response);
  if (!broken_) co_await linger();
}

// Closing a socket with unread input makes the kernel throw away what the client has not read yet, so the rest of its
// request is taken in first.
awaitable<void> Connection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  std::string discarded(kWriteSlice, '\0');
  arm_deadline(context_.options.linger_timeout);
  while (!timed_out_) {  // a client that never stops sending gives the deadline no read to cancel
    const auto result = co_await socket_.async_read_some(asio::buffer(discarded.data(), discarded.size()), kAwait);
    if (std::get<0>(result)) break;
  }
  disarm_deadline();
}

// ---- deadlines and signals

void Connection::arm_deadline(std::chrono::milliseconds time) {
  timed_out_ = false;
  ++deadline_number_;
  wait_for_deadline(time);
}

// A deadline that fires between two operations finds nothing to cancel, so it fires again until it is disarmed.
void Connection::wait_for_deadline(std::chrono::milliseconds time) {
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this(), number = deadline_number_](error_code error) {
    const auto self = weak.lock();
    if (error || !self || self->deadline_number_ != number) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
    self->wait_for_deadline(kDeadlineRepeat);
  });
}

void Connection::disarm_deadline() {
  ++deadline_number_;
  deadline_.cancel();
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Connection::signal() {
  signalled_ = true;
  signal_timer_.cancel();
}

awaitable<void> Connection::wait_signal(Clock::time_point until) {
  if (!signalled_) {
    signal_timer_.expires_at(until);
    co_await signal_timer_.async_wait(kAwait);
  }
  signalled_ = false;
}

// Keeps one read pending, so that the client's leaving is noticed at once; what it reads is the next request.
void Connection::start_watch() {
  if (watching_ || gone_ || aborted_) return;
  if (buffer_.size() >= kPipelinedLimit) {  // nothing more can be read, so its leaving would not be noticed
    spdlog::info("a client sent {} bytes while it waited for an answer and is cut off", buffer_.size());
    abort();
    return;
  }
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadPiece), [self = shared_from_this()](error_code error, size_t bytes) {
    self->on_watched(error, bytes);
  });
}

void Connection::on_watched(error_code error, size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (!error && !end_watch_) start_watch();
  if (error && error != asio::error::operation_aborted) {
    gone_ = true;
    if (streaming_) close();  // ends a write that nobody will read
  }
  signal();
}

awaitable<void> Connection::end_watch() {
  end_watch_ = true;
  error_code ignored;
  if (watching_) socket_.cancel(ignored);
  while (watching_) co_await wait_signal(Clock::time_point::max());
  end_watch_ = false;
}

// ---- what the server calls

void start_connection(ConnectionContext& context, tcp::socket socket, bool overloaded) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const auto executor = socket.get_executor();
  auto connection = std::make_shared<Connection>(context, std::move(socket));
  context.connections.emplace(connection.get(), connection);
  context.open = context.connections.size();
  auto ended = [connection](const std::exception_ptr& error) { connection->finish(error); };
  asio::co_spawn(executor, Connection::run(connection, overloaded), ended);
}

void drain_connection(Connection& connection) {
  connection.drain();
}
void abort_connection(Connection& connection) {
  connection.abort();
}

}  // namespace gannet::server
