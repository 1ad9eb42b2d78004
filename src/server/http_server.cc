#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "server/http_connection.h"
#include "server/http_host.h"

namespace gannet::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(50);
constexpr auto kAbortPatience = std::chrono::seconds(1);  // for connections that were cut off to end
constexpr size_t kOtherFiles = 128;                       // descriptors left for everything but connections

// Raises the open-file limit as far as it may go; returns the limit in force.
size_t raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<size_t>(limit.rlim_cur);
}

}  // namespace

struct HttpServer::Impl {
  // The context comes first: connections that the io_context still holds when it is destroyed use it.
  ConnectionContext context;
  asio::io_context io{1};
  asio::thread_pool workers;
  tcp::acceptor acceptor{io};
  asio::steady_timer accept_pause{io};
  asio::steady_timer drain_timer{io};
  asio::signal_set signals{io};
  int signal_count = 0;
  std::chrono::milliseconds drain_deadline{};
  std::function<void(int)> on_signal;
  std::string shown_host;
  uint16_t port = 0;

  explicit Impl(HttpServerOptions options)
      : context(options.worker_threads), workers(static_cast<size_t>(options.worker_threads + options.paused_threads)) {
    context.options = std::move(options);
    context.workers = &workers;
    context.wakes = std::make_shared<WakeQueue>(io.get_executor());
  }

  Status open();
  void guard_loopback();
  void accept();
  void wait_for_signal();
  void drain(std::chrono::milliseconds deadline);
  void abort_all();
  // Calls `action` on every connection; one that ends meanwhile does no harm.
  void for_all(void (*action)(Connection&));
};

Status HttpServer::Impl::open() {
  const auto& options = context.options;
  shown_host = options.host.find(':') == std::string::npos ? options.host : fmt::format("[{}]", options.host);
  error_code error;
  tcp::resolver resolver(io);
  const auto addresses = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || addresses.empty()) {
    return failed("cannot listen on {}:{}: {}", shown_host, options.port, error.message());
  }
  for (const auto& address : addresses) {
    const tcp::endpoint endpoint = address.endpoint();
    acceptor.close(error);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) {
      port = acceptor.local_endpoint().port();
      guard_loopback();
      return {};
    }
  }
  return failed("cannot listen on {}:{}: {}", shown_host, options.port, error.message());
}

// Nobody else can reach it, but for pages in a browser on this machine.
void HttpServer::Impl::guard_loopback() {
  auto& options = context.options;
  if (!options.guards_loopback || !options.allowed_hosts.empty()) return;
  if (!acceptor.local_endpoint().address().is_loopback()) return;
  options.allowed_hosts = loopback_hosts();
  options.allowed_hosts.push_back(shown_host);
}

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (error) {  // out of descriptors or memory: what is open goes on, and new ones wait
      spdlog::warn("cannot accept a connection: {}", error.message());
      accept_pause.expires_after(kAcceptPause);
      accept_pause.async_wait([this](error_code) {
        if (acceptor.is_open()) accept();
      });
      return;
    }
    start_connection(context, std::move(socket), context.connections.size() >= context.options.max_connections);
    accept();
  });
}

void HttpServer::Impl::wait_for_signal() {
  signals.async_wait([this](error_code error, int) {
    if (error) return;
    ++signal_count;
    if (on_signal) on_signal(signal_count);
    if (signal_count == 1) {
      drain(drain_deadline);
    } else {
      abort_all();
      io.stop();
    }
    wait_for_signal();
  });
}

void HttpServer::Impl::for_all(void (*action)(Connection&)) {
  std::vector<std::shared_ptr<Connection>> alive;
  for (const auto& [key, weak] : context.connections) {
    if (auto connection = weak.lock()) alive.push_back(std::move(connection));
  }
  for (const auto& connection : alive) action(*connection);
}

void HttpServer::Impl::drain(std::chrono::milliseconds deadline) {
  if (context.draining) return;
  context.draining = true;
  context.on_last_closed = [this] { io.stop(); };
  if (context.connections.empty()) {
    io.stop();
    return;
  }
  for_all(drain_connection);
  drain_timer.expires_after(deadline);
  drain_timer.async_wait([this](error_code error) {
    if (error) return;
    spdlog::warn("{} requests were not finished in time and are cut off", context.connections.size());
    error_code ignored;
    acceptor.close(ignored);
    drain_timer.expires_after(kAbortPatience);
    drain_timer.async_wait([this](error_code) { io.stop(); });
    abort_all();
  });
}

void HttpServer::Impl::abort_all() {
  for_all(abort_connection);
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  impl_->io.stop();
  impl_->workers.stop();
  impl_->workers.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpServerOptions options, Handler handler, ErrorPage error_page,
                                                       Observer observer) {
  const size_t files = raise_open_file_limit();
  if (options.max_connections == 0) options.max_connections = files > 2 * kOtherFiles ? files - kOtherFiles : files / 2;
  auto impl = std::make_unique<Impl>(std::move(options));
  impl->context.handler = std::move(handler);
  impl->context.error_page = std::move(error_page);
  impl->context.observer = std::move(observer);
  GANNET_TRY_STATUS(impl->open());
  return std::make_unique<HttpServer>(std::move(impl));
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::url() const {
  const char* scheme = impl_->context.options.tls ? "https" : "http";
  return fmt::format("{}://{}:{}", scheme, impl_->shown_host, impl_->port);
}

void HttpServer::drain_on_signals(std::chrono::milliseconds deadline, std::function<void(int)> on_signal) {
  impl_->drain_deadline = deadline;
  impl_->on_signal = std::move(on_signal);
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->wait_for_signal();
}

void HttpServer::run() {
  impl_->accept();
  impl_->io.run();
}

void HttpServer::drain(std::chrono::milliseconds deadline) {
  asio::post(impl_->io, [impl = impl_.get(), deadline] { impl->drain(deadline); });
}

void HttpServer::stop() {
  asio::post(impl_->io, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->abort_all();
    impl->io.stop();
  });
}

bool HttpServer::finish_workers(std::chrono::milliseconds patience) {
  impl_->workers.stop();
  return impl_->context.busy.close_and_wait(patience);
}

size_t HttpServer::open_connections() const {
  return impl_->context.open;
}

}  // namespace gannet::server
