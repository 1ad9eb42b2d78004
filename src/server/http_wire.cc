#include "server/http_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

namespace gannet::server {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kLongestRequestId = 128;

// Path and query of a request target; the absolute form that proxies send is cut to its path.
void split_target(std::string_view target, HttpRequest& request) {
  if (const auto scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const auto slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const auto question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
}

// An id that a client made goes into logs and headers, so it must be short and plain.
bool is_request_id(std::string_view text) {
  const auto plain = [](unsigned char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\'; };
  return !text.empty() && text.size() <= kLongestRequestId && std::all_of(text.begin(), text.end(), plain);
}

bool has(const Headers& headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

HttpRequest request_head(const BeastRequest& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  split_target(message.target(), request);
  for (const auto& field : message) {
    request.headers.emplace_back(lower_case(field.name_string()), std::string(field.value()));
  }
  request.id = std::string(request.header("x-request-id"));
  if (!is_request_id(request.id)) request.id = new_request_id();
  return request;
}

Refusal refusal_of(error_code error, const HttpServerOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, fmt::format("the request's headers are larger than {} bytes", options.header_limit)};
  }
  if (error == http::error::body_limit) {
    return {413, fmt::format("the request's body is larger than {} bytes", options.body_limit)};
  }
  return {400, fmt::format("this is not an HTTP/1.1 request that can be understood: {}", error.message())};
}

bool is_parse_error(error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category();
}

std::string response_head(const HttpResponse& response, const Headers& more, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: gannet\r\n", response.status,
                                 std::string_view(http::obsolete_reason(http::int_to_status(response.status))));
  const auto out = std::back_inserter(head);
  if (!response.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) {
    if (!has(more, name)) fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  for (const auto& [name, value] : more) fmt::format_to(out, "{}: {}\r\n", name, value);
  head += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head;
}

std::string new_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const uint64_t high = random();
  const uint64_t low = random();
  return fmt::format("req-{:016x}{:016x}", high, low);
}

}  // namespace gannet::server
