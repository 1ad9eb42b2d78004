#include "server/tls.h"

#include <openssl/err.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl.hpp>
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

class TlsTransport : public Transport {
 public:
  TlsTransport(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  awaitable<error_code> handshake() override {
    const auto result = co_await stream_.async_handshake(asio::ssl::stream_base::server, kAwait);
    co_return std::get<0>(result);
  }

  awaitable<IoResult> read_some(asio::mutable_buffer buffer) override {
    const auto result = co_await stream_.async_read_some(buffer, kAwait);
    co_return IoResult{std::get<0>(result), std::get<1>(result)};
  }

  void read_some(asio::mutable_buffer buffer, Done done) override { stream_.async_read_some(buffer, std::move(done)); }

  // A record that is written in part could not be taken back.
  size_t write_now(std::string_view) override { return 0; }

  awaitable<error_code> write(std::string_view data) override {
    const auto result = co_await asio::async_write(stream_, asio::buffer(data.data(), data.size()), kAwait);
    co_return std::get<0>(result);
  }

  awaitable<void> end_writing() override {
    co_await stream_.async_shutdown(kAwait);
    error_code ignored;
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }

  awaitable<IoResult> discard_some(asio::mutable_buffer buffer) override {
    const auto result = co_await stream_.next_layer().async_read_some(buffer, kAwait);
    co_return IoResult{std::get<0>(result), std::get<1>(result)};
  }

  void cancel() override {
    error_code ignored;
    stream_.next_layer().cancel(ignored);
  }

  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<tcp::socket> stream_;
};

class LoadedTls : public TlsContext {
 public:
  explicit LoadedTls(std::shared_ptr<asio::ssl::context> context) : context_(std::move(context)) {}
  std::unique_ptr<Transport> transport(tcp::socket socket) override {
    return std::make_unique<TlsTransport>(std::move(socket), context_);
  }

 private:
  std::shared_ptr<asio::ssl::context> context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::filesystem::path& certificate,
                                                     const std::filesystem::path& key) {
  using asio::ssl::context;
  auto loaded = std::make_shared<context>(context::tls_server);
  error_code error;
  loaded->set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 | context::no_tlsv1 |
                          context::no_tlsv1_1 | context::single_dh_use,
                      error);
  if (error) return failed("TLS cannot be set up: {}", error.message());
  // Without this OpenSSL would ask at the terminal.
  loaded->set_password_callback([](size_t, context::password_purpose) { return std::string(); }, error);
  loaded->use_certificate_chain_file(certificate.string(), error);
  if (error)
    return invalid_input("{}: is no PEM certificate that can be read: {}", certificate.string(), error.message());
  loaded->use_private_key_file(key.string(), context::pem, error);
  if (error) {
    return invalid_input("{}: is no PEM key without a passphrase that belongs to {}: {}", key.string(),
                         certificate.string(), error.message());
  }
  // Records are gathered in small buffers that idle connections give back.
  SSL_CTX_set_mode(loaded->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  return std::make_shared<LoadedTls>(std::move(loaded));
}

}  // namespace gannet::server
