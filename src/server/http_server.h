#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/http.h"

namespace gannet::server {

class TlsContext;

struct HttpServerOptions {
  std::string host = "127.0.0.1";                    // address or name to listen on
  uint16_t port = 0;                                 // 0: any free one
  size_t header_limit = 64 << 10;                    // bytes of request line and headers; more is answered with 431
  size_t body_limit = 32 << 20;                      // bytes of a request's body; more is answered with 413
  size_t max_connections = 0;                        // more are answered with 503; 0: what the open-file limit allows
  int worker_threads = 2;                            // that handle requests with a body at once
  int paused_threads = 32;                           // more of them, that may wait for something slow (WorkerPause)
  std::chrono::milliseconds idle_timeout{120'000};   // between two requests of a connection
  std::chrono::milliseconds header_timeout{30'000};  // for all of a request's headers, then 408
  std::chrono::milliseconds body_timeout{30'000};    // without any byte of a body, then 408
  std::chrono::milliseconds write_timeout{60'000};   // for a client to take what was sent, then it is dropped
  std::chrono::milliseconds linger_timeout{3'000};   // for a refused client to read why
  std::chrono::milliseconds keep_alive_interval{5'000};  // of silence in a stream, before StreamedAnswer::keep_alive
  // Web pages of these origins may use the server from a browser, "*" for all; pages of others may only read what is
  // open to everybody.
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;  // names that requests may use in Host, see http_host.h; none: all
  // Without allowed_hosts, and on a loopback address: the names of this machine, and `host`.
  bool guards_loopback = false;
  std::shared_ptr<TlsContext> tls;  // null: plain HTTP
  Gate gate;                        // empty: every request is read and handled
};

// HTTP/1.1 and 1.0 over TCP. One network thread serves all connections, so a stream costs no thread and a slow reader
// holds up nobody; requests with a body are handled by a few workers. A client that closes its connection, or half of
// it, while it waits is gone: its answer is destroyed at once.
class HttpServer {
 public:
  // Binds and listens; connections wait until run(). Error (failed): the address cannot be used, with the reason.
  static Result<std::unique_ptr<HttpServer>> listen(HttpServerOptions options, Handler handler, ErrorPage error_page,
                                                    Observer observer = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // "http://host:port", or https, as a client would write it.
  std::string url() const;

  // On SIGINT or SIGTERM calls `on_signal(1)` and drains within `deadline`; a second one calls `on_signal(2)` and
  // stops at once. Call before run(). `on_signal` runs on the network thread.
  void drain_on_signals(std::chrono::milliseconds deadline, std::function<void(int count)> on_signal);

  // Serves on the calling thread until drained or stopped.
  void run();
  // Closes idle connections, lets the others finish their request and cuts off those that have not by `deadline`; then
  // run() returns, soon after the deadline in any case. Until then new connections are answered, one request each, so
  // that the handler can say that the server is going. Callable from any thread.
  void drain(std::chrono::milliseconds deadline);
  // Cuts off everything; run() returns. Callable from any thread.
  void stop();

  // Begins no request any more and waits for those that a worker is at; false if some are not through by `patience`,
  // and then the destructor would wait for them. Call after run().
  bool finish_workers(std::chrono::milliseconds patience);

  // Connections open now. Callable from any thread.
  size_t open_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

 public:
  explicit HttpServer(std::unique_ptr<Impl> impl);  // for listen()
};

}  // namespace gannet::server
