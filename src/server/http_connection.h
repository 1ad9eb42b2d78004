#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/http.h"
#include "server/http_server.h"
#include "server/worker_permits.h"

// Inside of the HTTP server: only http_server.cc, http_connection.cc and its test include this.
namespace gannet::server {

class Connection;

// Workers that are at a request.
class BusyWorkers {
 public:
  // False once closed: the request must be left alone.
  bool begin() {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++count_;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  // Lets nobody begin any more; false if some are still at it after `patience`.
  bool close_and_wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    return changed_.wait_for(lock, patience, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  bool closed_ = false;
};

// Connections whose answer has something new. A step of the engine wakes hundreds of them; only the first one costs
// the network thread a wake-up.
class WakeQueue : public std::enable_shared_from_this<WakeQueue> {
 public:
  explicit WakeQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  // Callable from any thread.
  void push(std::weak_ptr<Connection> connection);

 private:
  void wake_all();

  boost::asio::any_io_executor executor_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Connection>> waiting_;
};

// What all connections of a server share. Touched by the network thread only, but for `open` and the workers.
struct ConnectionContext {
  explicit ConnectionContext(int working) : permits(working) {}

  HttpServerOptions options;
  Handler handler;
  ErrorPage error_page;
  Observer observer;  // may be empty
  std::shared_ptr<WakeQueue> wakes;
  boost::asio::thread_pool* workers = nullptr;  // not owned
  BusyWorkers busy;
  WorkerPermits permits;
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
