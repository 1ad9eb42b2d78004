#include "server/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/log_context.h"
#include "server/http_channel.h"
#include "server/http_cors.h"
#include "server/http_host.h"
#include "server/http_transport.h"
#include "server/http_wire.h"
#include "server/tls.h"

// g++ 12 miscompiles some temporaries inside a co_await expression (lambdas, aggregates, conditionals): here every
// operand of co_await is a plain call on named objects.

namespace gannet::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = HttpChannel::Clock;

namespace {

constexpr size_t kBodyPiece = 64 << 10;
constexpr uint64_t kSkippedBody = 64 << 10;  // of a request that was turned away; a larger one ends the connection
constexpr int kBodyTimeouts = 20;            // a whole body may take that many body_timeouts
constexpr int kPiecesWithoutPause = 16;  // of a stream whose reader is as fast as its writer, then others have a turn

std::string address_of(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? std::string() : endpoint.address().to_string();
}

std::unique_ptr<Transport> make_transport(const ConnectionContext& context, tcp::socket socket) {
  const auto& tls = context.options.tls;
  return tls ? tls->transport(std::move(socket)) : plain_transport(std::move(socket));
}

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionContext& context, tcp::socket socket)
      : context_(context),
        executor_(socket.get_executor()),
        remote_(address_of(socket)),
        channel_(std::make_shared<HttpChannel>(executor_, make_transport(context, std::move(socket)),
                                               context.options.header_limit)) {}

  static awaitable<void> run(std::shared_ptr<Connection> self, bool overloaded);
  // Called when run() has ended; `error` is what it threw, if anything.
  void finish(const std::exception_ptr& error);
  void drain();
  void abort() { channel_->abort(); }
  // Wakes run() when it waits for its answer.
  void signal() { channel_->signal(); }

 private:
  using Parser = http::request_parser<http::string_body>;
  struct Job {
    HttpRequest request;
    Reply reply;
    bool done = false;
  };

  awaitable<bool> shake_hands();
  awaitable<bool> serve_one();
  std::optional<HttpResponse> refusal(HttpRequest& head);
  awaitable<bool> turn_away(Parser& parser, HttpResponse response);
  awaitable<bool> skip_body(Parser& parser);
  awaitable<bool> answer(HttpRequest request);
  awaitable<bool> end_answer();
  awaitable<bool> wait_for_request();
  awaitable<bool> read_head(Parser& parser);
  void note_target(const Parser& parser);
  awaitable<bool> check_head(const Parser& parser);
  HttpRequest take_head(const Parser& parser);
  awaitable<bool> invite_body(const Parser& parser);
  awaitable<bool> read_body(Parser& parser);
  awaitable<error_code> feed(Parser& parser, size_t piece);
  awaitable<Reply> handle(HttpRequest request);
  awaitable<Reply> handle_on_worker(HttpRequest request);
  awaitable<void> send(Reply& reply);
  awaitable<void> send_response(const HttpResponse& response);
  awaitable<void> send_whole(WholeAnswer& answer);
  awaitable<void> send_stream(StreamedAnswer& answer);
  awaitable<void> send_pieces(StreamedAnswer& answer, bool chunked);
  awaitable<bool> write_all(std::string_view data);
  bool pull(StreamedAnswer& answer, std::string& out) const;
  std::optional<HttpResponse> poll(WholeAnswer& answer) const;
  awaitable<void> pause();
  awaitable<void> refuse(int status, std::string message);

  void begin_record();
  void end_record();
  void send_request_id();
  template <class About, class Call>
  auto guarded(const About& request, Call call) const -> decltype(call());
  std::function<void()> wake_up();
  bool cut_short() const { return channel_->gone() || channel_->aborted() || broken_; }

  ConnectionContext& context_;
  asio::any_io_executor executor_;
  std::string remote_;
  std::shared_ptr<HttpChannel> channel_;

  bool idle_ = false;    // between two requests
  bool served_ = false;  // had at least one request
  bool broken_ = false;  // an answer could not be written whole
  bool failed_ = false;  // something threw in the middle of a request

  // Of the request being answered.
  bool keep_alive_ = false;
  bool head_only_ = false;  // HEAD: headers without the body
  bool http11_ = true;
  Headers more_headers_;  // of its response, beside the handler's
  RequestRecord record_;
  bool recording_ = false;       // of a request that is not over
  uint64_t written_before_ = 0;  // bytes of earlier answers
  Clock::time_point began_;
};

// ---- life of a connection

awaitable<void> Connection::run(std::shared_ptr<Connection> self, bool overloaded) {
  if (!co_await self->shake_hands()) co_return;
  if (overloaded) {
    self->begin_record();
    std::string message = "the server has as many connections as it can hold; try again later";
    co_await self->refuse(503, std::move(message));
  } else {
    while (co_await self->serve_one()) {
    }
  }
}

awaitable<bool> Connection::shake_hands() {
  const error_code error = co_await channel_->handshake(context_.options.header_timeout);
  if (error) spdlog::debug("{}: no TLS connection: {}", remote_, error.message());
  co_return !error && !channel_->aborted();
}

void Connection::finish(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    const LogContext context(record_.id);
    spdlog::error("a connection failed inside the server: {}", exception.what());
    failed_ = true;
    if (recording_) end_record();
  }
  channel_->close();
  context_.connections.erase(this);
  context_.open = context_.connections.size();
  if (context_.connections.empty() && context_.on_last_closed) context_.on_last_closed();
}

void Connection::drain() {
  if (idle_) abort();
}

// One request and its answer; false when the connection is over.
awaitable<bool> Connection::serve_one() {
  if (!co_await wait_for_request()) co_return false;
  begin_record();
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(context_.options.header_limit));
  parser.body_limit(context_.options.body_limit);
  if (!co_await read_head(parser)) co_return false;
  HttpRequest request = take_head(parser);
  if (auto refused = refusal(request)) co_return co_await turn_away(parser, *std::move(refused));
  if (!co_await invite_body(parser)) co_return false;
  if (!co_await read_body(parser)) co_return false;
  request.body = std::move(parser.get().body());
  co_return co_await answer(std::move(request));
}

HttpRequest Connection::take_head(const Parser& parser) {
  keep_alive_ = parser.get().keep_alive();
  http11_ = parser.get().version() >= 11;
  head_only_ = parser.get().method() == http::verb::head;
  served_ = true;
  HttpRequest request = request_head(parser.get());
  request.remote = remote_;
  record_.id = request.id;
  record_.method = request.method;
  record_.path = request.path;
  send_request_id();
  return request;
}

// Anthropic's clients look for a name of their own.
void Connection::send_request_id() {
  for (const char* name : {"X-Request-Id", "Request-Id"}) more_headers_.emplace_back(name, record_.id);
}

awaitable<bool> Connection::answer(HttpRequest request) {
  Reply reply = co_await handle(std::move(request));
  co_await send(reply);
  {
    const LogContext context(record_.id);
    reply = HttpResponse();
  }
  co_return co_await end_answer();
}

awaitable<bool> Connection::end_answer() {
  {
    const LogContext context(record_.id);
    end_record();
  }
  if (cut_short()) co_return false;
  if (keep_alive_) co_return true;
  co_await channel_->linger(context_.options.linger_timeout);
  co_return false;
}

// Answers a request without taking in its body. A small body is passed over, so that the connection can go on; a client
// that waits to be asked for it may or may not send it.
awaitable<bool> Connection::turn_away(Parser& parser, HttpResponse response) {
  const auto left = parser.content_length_remaining();
  const bool asks = parser.get().count(http::field::expect) > 0;
  const bool passable = parser.is_done() || (!asks && left && *left <= kSkippedBody);
  keep_alive_ = keep_alive_ && passable;
  co_await send_response(response);
  if (!co_await end_answer()) co_return false;
  co_return co_await skip_body(parser);
}

awaitable<bool> Connection::skip_body(Parser& parser) {
  error_code error;
  parser.eager(true);
  channel_->arm_deadline(context_.options.linger_timeout);
  while (!parser.is_done() && !error && !channel_->timed_out()) error = co_await feed(parser, HttpChannel::kReadPiece);
  channel_->disarm_deadline();
  co_return parser.is_done();
}

void Connection::begin_record() {
  began_ = Clock::now();
  recording_ = true;
  record_ = RequestRecord();
  record_.remote = remote_;
  written_before_ = channel_->written();
  more_headers_.clear();
}

void Connection::end_record() {
  recording_ = false;
  if (cut_short()) record_.status = kClientGone;
  if (failed_) record_.status = 500;
  record_.bytes = channel_->written() - written_before_;
  record_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (context_.observer) context_.observer(record_);
}

awaitable<bool> Connection::wait_for_request() {
  if (channel_->unread().size() > 0) co_return true;
  // While the server drains, a new connection may still ask once, for instance whether the server is ready.
  if (context_.draining && served_) co_return false;
  idle_ = true;
  channel_->arm_deadline(context_.draining ? context_.options.linger_timeout : context_.options.idle_timeout);
  const error_code error = co_await channel_->read();
  channel_->disarm_deadline();
  idle_ = false;
  co_return !error;
}

// Gives the parser what has been read, after reading more if there is nothing. An error is the socket's or the
// parser's; need_more is none.
awaitable<error_code> Connection::feed(Parser& parser, size_t piece) {
  auto& unread = channel_->unread();
  if (unread.size() > 0) {
    error_code error;
    unread.consume(parser.put(unread.data(), error));
    if (error != http::error::need_more) co_return error;
  }
  co_return co_await channel_->read(piece);
}

// Reads the request line and headers; false when the connection is over, after an answer if there is one to give.
awaitable<bool> Connection::read_head(Parser& parser) {
  error_code error;
  channel_->arm_deadline(context_.options.header_timeout);
  while (!parser.is_header_done() && !error && !channel_->timed_out()) {
    error = co_await feed(parser, HttpChannel::kReadPiece);
  }
  channel_->disarm_deadline();
  note_target(parser);
  if (channel_->timed_out()) {
    std::string message =
        fmt::format("the request's headers did not arrive within {} ms", context_.options.header_timeout.count());
    co_await refuse(408, std::move(message));
    co_return false;
  }
  if (channel_->aborted()) co_return false;
  if (error) {
    if (!is_parse_error(error)) co_return false;
    Refusal refusal = refusal_of(error, context_.options);
    co_await refuse(refusal.status, std::move(refusal.message));
    co_return false;
  }
  co_return co_await check_head(parser);
}

// What is known of the request, for errors and the record; nothing if not even its first line was understood.
void Connection::note_target(const Parser& parser) {
  const std::string_view target = parser.get().target();
  record_.method = std::string(parser.get().method_string());
  record_.path = std::string(target.substr(0, target.find('?')));
}

awaitable<bool> Connection::check_head(const Parser& parser) {
  const auto& head = parser.get();
  if (head.version() >= 11 && head.count(http::field::host) != 1) {
    std::string message = "an HTTP/1.1 request must have exactly one Host header";
    co_await refuse(400, std::move(message));
    co_return false;
  }
  const auto expect = lower_case(head[http::field::expect]);
  if (!expect.empty() && expect != "100-continue") {
    std::string message = "the Expect header must be '100-continue'";
    co_await refuse(417, std::move(message));
    co_return false;
  }
  co_return true;
}

// For a client that sends its body only when it is told that it may.
awaitable<bool> Connection::invite_body(const Parser& parser) {
  const auto& head = parser.get();
  const bool asks = head.count(http::field::expect) > 0 && head.version() >= 11;
  if (!asks || parser.is_done() || channel_->unread().size() > 0) co_return true;
  co_return co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
}

awaitable<bool> Connection::read_body(Parser& parser) {
  parser.eager(true);
  const auto last = Clock::now() + kBodyTimeouts * context_.options.body_timeout;
  while (!parser.is_done()) {
    channel_->arm_deadline(context_.options.body_timeout);
    const error_code error = co_await feed(parser, kBodyPiece);
    channel_->disarm_deadline();
    if (channel_->timed_out() || Clock::now() > last) {
      std::string message = "the request's body did not arrive in time";
      co_await refuse(408, std::move(message));
      co_return false;
    }
    if (!error) continue;
    if (is_parse_error(error)) {
      Refusal refusal = refusal_of(error, context_.options);
      co_await refuse(refusal.status, std::move(refusal.message));
    }
    co_return false;
  }
  co_return true;
}

// ---- handling

// Runs `call`; what it throws becomes an answer. `request`: an HttpRequest, or the record of one.
template <class About, class Call>
auto Connection::guarded(const About& request, Call call) const -> decltype(call()) {
  const LogContext context(request.id);
  try {
    return call();
  } catch (const std::exception& error) {
    spdlog::error("{} {} failed inside the server: {}", request.method, request.path, error.what());
    return context_.error_page(500, "the server failed while it handled this request", request.path);
  }
}

// The answer to a request that nobody is to handle, as its head alone tells.
std::optional<HttpResponse> Connection::refusal(HttpRequest& request) {
  const auto& hosts = context_.options.allowed_hosts;
  if (const auto host = request.header("host"); !is_allowed_host(host, hosts)) {
    const std::string message =
        fmt::format("Host is '{}'; this server answers to {} only. --allowed-hosts names others", host.substr(0, 100),
                    fmt::join(hosts, ", "));
    return context_.error_page(403, message, request.path);
  }
  const Origin origin = origin_of(request, context_.options.allowed_origins);
  if (origin == Origin::allowed) {
    for (auto& header : cors_headers(request)) more_headers_.push_back(std::move(header));
    if (is_preflight(request)) return preflight_response(request);
  }
  const bool only_reads = request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
  if (origin == Origin::foreign && !only_reads) {
    std::string message = "web pages of other origins may not use this server; --allowed-origins lets them";
    return context_.error_page(403, message, request.path);
  }
  if (!context_.options.gate) return {};
  const auto look = [&] { return context_.options.gate(request); };
  auto refused = guarded(request, look);
  request.admitted = !refused;
  return refused;
}

awaitable<Reply> Connection::handle(HttpRequest request) {
  if (request.body.empty()) {
    const auto call = [&] { return context_.handler(request); };
    co_return guarded(request, call);
  }
  co_return co_await handle_on_worker(std::move(request));
}

awaitable<Reply> Connection::handle_on_worker(HttpRequest request) {
  auto job = std::make_shared<Job>();
  job->request = std::move(request);
  auto work = [self = shared_from_this(), job] {
    BusyWorkers& busy = self->context_.busy;
    if (!busy.begin()) return;
    const auto call = [&] { return self->context_.handler(job->request); };
    {
      const WorkerPermit permit(self->context_.permits);
      job->reply = self->guarded(job->request, call);
    }
    busy.end();
    auto deliver = [self, job] {
      job->done = true;
      self->signal();
    };
    asio::post(self->executor_, std::move(deliver));
  };
  asio::post(*context_.workers, std::move(work));
  channel_->start_watch(HttpChannel::Meanwhile::wait);
  while (!job->done && !channel_->aborted()) co_await channel_->wait_signal();
  co_await channel_->end_watch();
  // An answer that comes too late is destroyed with the job.
  if (!job->done) co_return HttpResponse();
  co_return std::move(job->reply);
}

std::function<void()> Connection::wake_up() {
  return [weak = weak_from_this(), wakes = context_.wakes] { wakes->push(weak); };
}

// ---- answers

awaitable<void> Connection::send(Reply& reply) {
  if (channel_->aborted()) co_return;
  if (const auto* response = std::get_if<HttpResponse>(&reply)) {
    co_await send_response(*response);
  } else if (channel_->gone()) {
    co_return;
  } else if (const auto* whole = std::get_if<std::unique_ptr<WholeAnswer>>(&reply)) {
    co_await send_whole(**whole);
  } else {
    co_await send_stream(*std::get<std::unique_ptr<StreamedAnswer>>(reply));
  }
}

awaitable<void> Connection::send_response(const HttpResponse& response) {
  keep_alive_ = keep_alive_ && !context_.draining;
  record_.status = response.status;
  std::string text = response_head(response, more_headers_, keep_alive_);
  if (response.status != 204) fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", response.body.size());
  text += "\r\n";
  if (!head_only_) text += response.body;
  broken_ = !co_await write_all(text);
}

awaitable<void> Connection::send_whole(WholeAnswer& answer) {
  std::optional<HttpResponse> response;
  {
    const LogContext context(record_.id);
    answer.start(wake_up());
  }
  channel_->start_watch(HttpChannel::Meanwhile::wait);
  response = poll(answer);
  while (!response && !cut_short()) {
    co_await channel_->wait_signal();
    response = poll(answer);
  }
  record_.tokens = answer.tokens();
  co_await channel_->end_watch();
  if (response && !channel_->aborted()) co_await send_response(*response);
}

awaitable<void> Connection::send_stream(StreamedAnswer& answer) {
  const bool chunked = http11_;
  keep_alive_ = keep_alive_ && chunked && !context_.draining;
  HttpResponse response;
  response.content_type = answer.content_type();
  response.headers = answer.headers();
  record_.status = response.status;
  std::string head = response_head(response, more_headers_, keep_alive_);
  head += chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  broken_ = !co_await write_all(head);
  if (broken_ || head_only_) co_return;

  answer.start(wake_up());
  channel_->start_watch(HttpChannel::Meanwhile::write);
  co_await send_pieces(answer, chunked);
  record_.tokens = answer.tokens();
  co_await channel_->end_watch();
}

// Appends `piece` as the body of a response, and its end.
void frame(std::string_view piece, bool chunked, bool last, std::string& out) {
  if (!chunked) {
    out += piece;
    return;
  }
  if (!piece.empty()) {
    fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
    out += piece;
    out += "\r\n";
  }
  if (last) out += "0\r\n\r\n";
}

awaitable<void> Connection::send_pieces(StreamedAnswer& answer, bool chunked) {
  auto last_write = Clock::now();
  bool complete = false;
  std::string piece;
  std::string framed;
  for (int pieces = 0; !complete && !cut_short();) {
    piece.clear();
    complete = pull(answer, piece);
    if (piece.empty() && !complete) {
      pieces = 0;
      const auto next_sign = last_write + context_.options.keep_alive_interval;
      if (Clock::now() < next_sign) {
        co_await channel_->wait_signal(next_sign);
        continue;
      }
      answer.keep_alive(piece);
    }
    framed.clear();
    frame(piece, chunked, complete, framed);
    last_write = Clock::now();
    const size_t sent = channel_->write_now(framed);
    if (sent < framed.size()) broken_ = !co_await write_all(std::string_view(framed).substr(sent));
    if (++pieces % kPiecesWithoutPause == 0) co_await pause();
  }
}

std::optional<HttpResponse> Connection::poll(WholeAnswer& answer) const {
  const auto call = [&] { return answer.poll(); };
  return guarded(record_, call);
}

// What it throws ends the connection: a part of the answer has been sent already.
bool Connection::pull(StreamedAnswer& answer, std::string& out) const {
  const LogContext context(record_.id);
  return answer.pull(out);
}

// Lets other connections have a turn.
awaitable<void> Connection::pause() {
  co_await asio::post(executor_, asio::use_awaitable);
}

awaitable<bool> Connection::write_all(std::string_view data) {
  co_return co_await channel_->write_all(data, context_.options.write_timeout);
}

// Answers a request that HTTP itself cannot take and ends the connection.
awaitable<void> Connection::refuse(int status, std::string message) {
  keep_alive_ = false;
  if (record_.id.empty()) {
    record_.id = new_request_id();
    send_request_id();
  }
  const HttpResponse response = context_.error_page(status, message, record_.path);
  co_await send_response(response);
  co_await end_answer();
}

// ---- what the server calls

void WakeQueue::push(std::weak_ptr<Connection> connection) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(connection));
    if (waiting_.size() > 1) return;
  }
  asio::post(executor_, [self = shared_from_this()] { self->wake_all(); });
}

void WakeQueue::wake_all() {
  std::vector<std::weak_ptr<Connection>> woken;
  {
    const std::lock_guard lock(mutex_);
    woken.swap(waiting_);
  }
  for (const auto& weak : woken) {
    if (const auto connection = weak.lock()) connection->signal();
  }
}

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
