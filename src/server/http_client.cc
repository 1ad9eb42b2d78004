#include "server/http_client.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <utility>

namespace gannet::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr auto kConnectTimeout = std::chrono::seconds(10);

bool is_ipv6(const std::string& host) {
  return host.find(':') != std::string::npos;
}

// Runs asynchronous operations one at a time, so that each can be given up.
class Exchange {
 public:
  Exchange(const Url& url, const ClientRequest& request) : url_(url), request_(request) {}

  Result<ClientResponse> run() {
    tcp::resolver resolver(io_);
    error_code error;
    const auto addresses = resolver.resolve(url_.host, std::to_string(url_.port), error);
    if (error) return failed("{} cannot be reached: {}", url_.text(), error.message());
    asio::async_connect(socket_, addresses, [this](error_code result, const tcp::endpoint&) { end(result); });
    GANNET_TRY_STATUS(wait("cannot be reached", std::chrono::steady_clock::now() + kConnectTimeout));
    if (!cancelled_) GANNET_TRY_STATUS(send());
    if (!cancelled_) GANNET_TRY_STATUS(receive());
    response_.cancelled = cancelled_;
    return std::move(response_);
  }

 private:
  void end(error_code result) {
    result_ = result;
    done_ = true;
  }

  // Waits for the operation that was started. Sets `cancelled_` when the caller wants no more.
  Status wait(const char* problem,
              std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max()) {
    bool late = false;
    while (!done_) {
      io_.restart();
      io_.run_for(kPollInterval);
      late = std::chrono::steady_clock::now() > deadline;
      cancelled_ = cancelled_ || (request_.keep_going && !request_.keep_going());
      error_code ignored;
      if (!done_ && (late || cancelled_)) socket_.close(ignored);
    }
    done_ = false;
    if (cancelled_) return {};
    if (late && result_) return failed("{} {}: no answer in time", url_.text(), problem);
    if (result_) return failed("{} {}: {}", url_.text(), problem, result_.message());
    return {};
  }

  Status send() {
    std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request_.method, url_.path,
                                   request_.path, host_header());
    for (const auto& [name, value] : request_.headers) text += fmt::format("{}: {}\r\n", name, value);
    if (!request_.body.empty()) text += fmt::format("Content-Length: {}\r\n", request_.body.size());
    text += "\r\n" + request_.body;
    asio::async_write(socket_, asio::buffer(text), [this](error_code result, size_t) { end(result); });
    return wait("did not take the request");
  }

  Status receive() {
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    http::async_read_header(socket_, buffer_, parser, [this](error_code result, size_t) { end(result); });
    GANNET_TRY_STATUS(wait("did not answer"));
    if (cancelled_) return {};
    response_.status = parser.get().result_int();
    while (!parser.is_done()) {
      http::async_read_some(socket_, buffer_, parser, [this](error_code result, size_t) { end(result); });
      GANNET_TRY_STATUS(wait("broke the connection during its answer"));
      if (cancelled_) return {};
      take(parser.get().body());
    }
    take(parser.get().body());
    return {};
  }

  void take(std::string& body) {
    if (body.empty()) return;
    if (request_.on_data && response_.status == 200) {
      request_.on_data(body);
    } else {
      response_.body += body;
    }
    body.clear();
  }

  std::string host_header() const {
    return is_ipv6(url_.host) ? fmt::format("[{}]:{}", url_.host, url_.port)
                              : fmt::format("{}:{}", url_.host, url_.port);
  }

  const Url& url_;
  const ClientRequest& request_;
  asio::io_context io_{1};
  tcp::socket socket_{io_};
  boost::beast::flat_buffer buffer_;
  bool done_ = false;
  bool cancelled_ = false;
  error_code result_;
  ClientResponse response_;
};

}  // namespace

std::string Url::text() const {
  return is_ipv6(host) ? fmt::format("http://[{}]:{}{}", host, port, path)
                       : fmt::format("http://{}:{}{}", host, port, path);
}

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) {
    return invalid_input("the URL is '{}'; https is not supported, give an http:// address", text);
  }
  const auto wrong = [text] {
    return invalid_input("the URL is '{}'; it must be http://HOST:PORT, such as http://127.0.0.1:8000", text);
  };
  if (!text.starts_with(kScheme)) return wrong();
  std::string_view rest = text.substr(kScheme.size());
  Url url;
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = std::string(rest.substr(slash));
  while (url.path.ends_with('/')) url.path.pop_back();
  rest = rest.substr(0, slash);
  size_t colon = rest.rfind(':');
  if (rest.starts_with('[')) {
    const size_t bracket = rest.find(']');
    if (bracket == std::string_view::npos) return wrong();
    url.host = std::string(rest.substr(1, bracket - 1));
    colon = bracket + 1 == rest.size() ? std::string_view::npos : bracket + 1;
    if (colon != std::string_view::npos && rest[colon] != ':') return wrong();
  } else {
    url.host = std::string(rest.substr(0, colon));
  }
  if (colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0) return wrong();
  }
  const bool plain = url.host.find_first_of(" @\r\n\t?#") == std::string::npos &&
                     url.path.find_first_of(" \r\n\t?#") == std::string::npos;
  if (url.host.empty() || !plain) return wrong();
  return url;
}

Result<ClientResponse> send_request(const Url& url, const ClientRequest& request) {
  return Exchange(url, request).run();
}

}  // namespace gannet::server
