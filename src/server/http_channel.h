#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "server/http_transport.h"

// One client's socket with what a conversation over it needs, whatever the conversation is about: bytes that were read
// ahead, a deadline, writing in slices, and word of a client that has gone. Only http_connection.cc includes this.
namespace gannet::server {

// For the network thread: one task reads, writes and waits; others may signal and abort.
class HttpChannel : public std::enable_shared_from_this<HttpChannel> {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kReadPiece = 4096;

  // Holds up to `most_ahead` bytes of a request that nobody has taken yet, beside 128 KiB of those behind it.
  HttpChannel(boost::asio::any_io_executor executor, std::unique_ptr<Transport> transport, size_t most_ahead);

  boost::asio::awaitable<boost::system::error_code> handshake(std::chrono::milliseconds time);

  // ---- reading

  boost::beast::flat_buffer& unread() { return buffer_; }
  // Appends up to `piece` bytes to what is unread; buffer_overflow when there is no room.
  boost::asio::awaitable<boost::system::error_code> read(size_t piece = kReadPiece);

  // ---- writing

  // What goes without waiting: how many bytes that were. Errors show in write_all.
  size_t write_now(std::string_view data);
  // False when it could not be written; every slice of some hundred KiB may take `time`.
  boost::asio::awaitable<bool> write_all(std::string_view data, std::chrono::milliseconds time);
  uint64_t written() const { return written_; }
  // Tells the client that nothing more will come and takes in what it still sends, for `time` at most. Closing a socket
  // with unread input makes the kernel throw away what the client has not read yet.
  boost::asio::awaitable<void> linger(std::chrono::milliseconds time);

  // ---- deadlines

  // From now on what is pending ends after `time`, and timed_out() tells; until disarm_deadline.
  void arm_deadline(std::chrono::milliseconds time);
  void disarm_deadline();
  bool timed_out() const { return timed_out_; }

  // ---- waiting for an answer

  // Ends a wait_signal, the next one if there is none now.
  void signal();
  boost::asio::awaitable<void> wait_signal(Clock::time_point until = Clock::time_point::max());
  // Between these two the client's leaving is noticed at once; what it sends is read ahead. One that sends too much is
  // cut off. While an answer is written, its leaving also ends the pending write, which nobody would read.
  enum class Meanwhile { wait, write };
  void start_watch(Meanwhile meanwhile);
  boost::asio::awaitable<void> end_watch();
  bool gone() const { return gone_; }

  // Ends everything that is pending, for good.
  void abort();
  bool aborted() const { return aborted_; }
  void close() { transport_->close(); }

 private:
  void wait_for_deadline(std::chrono::milliseconds time);
  void watch();
  void on_watched(boost::system::error_code error, size_t bytes);

  std::unique_ptr<Transport> transport_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer signal_timer_;
  boost::beast::flat_buffer buffer_;
  uint64_t deadline_number_ = 0;  // a deadline that fired late finds another number and does nothing
  uint64_t written_ = 0;
  bool timed_out_ = false;
  bool signalled_ = false;
  bool gone_ = false;      // the client closed its side
  bool aborted_ = false;   // we cut it off
  bool watching_ = false;  // a read is pending that tells when the client goes
  bool end_watch_ = false;
  bool writing_ = false;  // while it is watched
};

}  // namespace gannet::server
