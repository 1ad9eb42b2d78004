#include "server/http_transport.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace gannet::server {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);  // for write_now
  }

  awaitable<error_code> handshake() override { co_return error_code(); }

  awaitable<IoResult> read_some(asio::mutable_buffer buffer) override {
    const auto result = co_await socket_.async_read_some(buffer, kAwait);
    co_return IoResult{std::get<0>(result), std::get<1>(result)};
  }

  void read_some(asio::mutable_buffer buffer, Done done) override { socket_.async_read_some(buffer, std::move(done)); }

  size_t write_now(std::string_view data) override {
    error_code ignored;
    return socket_.write_some(asio::buffer(data.data(), data.size()), ignored);
  }

  awaitable<error_code> write(std::string_view data) override {
    const auto result = co_await asio::async_write(socket_, asio::buffer(data.data(), data.size()), kAwait);
    co_return std::get<0>(result);
  }

  awaitable<void> end_writing() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }

  awaitable<IoResult> discard_some(asio::mutable_buffer buffer) override { return read_some(buffer); }

  void cancel() override {
    error_code ignored;
    socket_.cancel(ignored);
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace gannet::server
