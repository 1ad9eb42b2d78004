#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "server/http.h"
#include "server/http_server.h"

// Inside of the HTTP server: only http_server.cc and http_connection.cc include this.
namespace gannet::server {

class Connection;

// Workers that are at a request.
class BusyWorkers {
 public:
  void add(int change) {
    const std::lock_guard lock(mutex_);
    count_ += change;
    changed_.notify_all();
  }
  // False if some still are after `patience`.
  bool wait_for_none(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// What all connections of a server share. Touched by the network thread only, but for `open` and the workers.
struct ConnectionContext {
  HttpServerOptions options;
  Handler handler;
  ErrorPage error_page;
  boost::asio::thread_pool* workers = nullptr;  // not owned
  BusyWorkers busy;
  bool draining = false;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
  std::atomic<size_t> open{0};
  std::function<void()> on_last_closed;  // called when the last connection is gone
};

// Takes over an accepted socket. `overloaded`: answers 503 and closes.
void start_connection(ConnectionContext& context, boost::asio::ip::tcp::socket socket, bool overloaded);
// Closes it if it is between two requests, else lets it finish the request it is at.
void drain_connection(Connection& connection);
void abort_connection(Connection& connection);

}  // namespace gannet::server
