#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

// The bytes of a connection, as they are or through TLS. One class for both keeps the connection's code from being
// compiled twice. Only http_*.cc and tls.cc include this.
namespace gannet::server {

struct IoResult {
  boost::system::error_code error;
  size_t bytes = 0;
};

// For the network thread. At most one read and one write may be pending.
class Transport {
 public:
  using Done = std::function<void(boost::system::error_code error, size_t bytes)>;

  virtual ~Transport() = default;

  // What must happen before the first byte.
  virtual boost::asio::awaitable<boost::system::error_code> handshake() = 0;
  virtual boost::asio::awaitable<IoResult> read_some(boost::asio::mutable_buffer buffer) = 0;
  // The same with a callback.
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  // Writes what goes without waiting; returns how many bytes that were. Errors show in the next write().
  virtual size_t write_now(std::string_view data) = 0;
  virtual boost::asio::awaitable<boost::system::error_code> write(std::string_view data) = 0;
  // Tells the client that nothing more will come.
  virtual boost::asio::awaitable<void> end_writing() = 0;
  // Reads bytes of no interest, below TLS.
  virtual boost::asio::awaitable<IoResult> discard_some(boost::asio::mutable_buffer buffer) = 0;

  // Ends what is pending, with operation_aborted.
  virtual void cancel() = 0;
  virtual void close() = 0;
};

std::unique_ptr<Transport> plain_transport(boost::asio::ip::tcp::socket socket);

}  // namespace gannet::server
