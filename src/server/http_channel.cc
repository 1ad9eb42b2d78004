#include "server/http_channel.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <string>
#include <utility>

#include "base/log.h"

// Operands of co_await are plain calls on named objects: http_connection.cc says why.

namespace gannet::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kWriteSlice = 256 << 10;     // written under one deadline
constexpr size_t kPipelinedLimit = 64 << 10;  // bytes of later requests taken while one is being answered; more end it
constexpr auto kDeadlineRepeat = std::chrono::milliseconds(20);

}  // namespace

HttpChannel::HttpChannel(asio::any_io_executor executor, std::unique_ptr<Transport> transport, size_t most_ahead)
    : transport_(std::move(transport)),
      deadline_(executor),
      signal_timer_(std::move(executor)),
      buffer_(most_ahead + 2 * kPipelinedLimit) {}

awaitable<error_code> HttpChannel::handshake(std::chrono::milliseconds time) {
  arm_deadline(time);
  const error_code error = co_await transport_->handshake();
  disarm_deadline();
  co_return error;
}

awaitable<error_code> HttpChannel::read(size_t piece) {
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) co_return http::make_error_code(http::error::buffer_overflow);
  const auto result = co_await transport_->read_some(buffer_.prepare(std::min(piece, room)));
  buffer_.commit(result.bytes);
  co_return result.error;
}

size_t HttpChannel::write_now(std::string_view data) {
  const size_t sent = transport_->write_now(data);
  written_ += sent;
  return sent;
}

awaitable<bool> HttpChannel::write_all(std::string_view data, std::chrono::milliseconds time) {
  data.remove_prefix(write_now(data.substr(0, kWriteSlice)));
  while (!data.empty()) {
    const auto slice = data.substr(0, kWriteSlice);
    arm_deadline(time);
    const error_code error = co_await transport_->write(slice);
    disarm_deadline();
    if (error) co_return false;
    written_ += slice.size();
    data.remove_prefix(slice.size());
  }
  co_return true;
}

awaitable<void> HttpChannel::linger(std::chrono::milliseconds time) {
  std::string discarded(kWriteSlice, '\0');
  arm_deadline(time);
  co_await transport_->end_writing();
  while (!timed_out_) {  // a client that never stops sending gives the deadline no read to cancel
    const auto result = co_await transport_->discard_some(asio::buffer(discarded.data(), discarded.size()));
    if (result.error) break;
  }
  disarm_deadline();
}

void HttpChannel::arm_deadline(std::chrono::milliseconds time) {
  timed_out_ = false;
  ++deadline_number_;
  wait_for_deadline(time);
}

// A deadline that fires between two operations finds nothing to cancel, so it fires again until it is disarmed.
void HttpChannel::wait_for_deadline(std::chrono::milliseconds time) {
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this(), number = deadline_number_](error_code error) {
    const auto self = weak.lock();
    if (error || !self || self->deadline_number_ != number) return;
    self->timed_out_ = true;
    self->transport_->cancel();
    self->wait_for_deadline(kDeadlineRepeat);
  });
}

void HttpChannel::disarm_deadline() {
  ++deadline_number_;
  deadline_.cancel();
}

void HttpChannel::signal() {
  signalled_ = true;
  signal_timer_.cancel();
}

awaitable<void> HttpChannel::wait_signal(Clock::time_point until) {
  if (!signalled_) {
    signal_timer_.expires_at(until);
    co_await signal_timer_.async_wait(kAwait);
  }
  signalled_ = false;
}

void HttpChannel::start_watch(Meanwhile meanwhile) {
  writing_ = meanwhile == Meanwhile::write;
  watch();
}

// Keeps one read pending; what it reads is the next request.
void HttpChannel::watch() {
  if (watching_ || gone_ || aborted_) return;
  if (buffer_.size() >= kPipelinedLimit) {  // nothing more can be read, so its leaving would not be noticed
    spdlog::info("a client sent {} bytes while it waited for an answer and is cut off", buffer_.size());
    abort();
    return;
  }
  watching_ = true;
  transport_->read_some(buffer_.prepare(kReadPiece), [self = shared_from_this()](error_code error, size_t bytes) {
    self->on_watched(error, bytes);
  });
}

void HttpChannel::on_watched(error_code error, size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (!error && !end_watch_) watch();
  if (error && error != asio::error::operation_aborted) {
    gone_ = true;
    if (writing_) transport_->close();
  }
  signal();
}

awaitable<void> HttpChannel::end_watch() {
  writing_ = false;
  end_watch_ = true;
  if (watching_) transport_->cancel();
  while (watching_) co_await wait_signal();
  end_watch_ = false;
}

void HttpChannel::abort() {
  aborted_ = true;
  transport_->close();
  signal();
}

}  // namespace gannet::server
