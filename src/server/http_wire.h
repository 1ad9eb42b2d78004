#pragma once

#include <boost/beast/http.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_server.h"

// HTTP/1.1 as bytes: what Beast parsed, and the head of what is sent. Only http_*.cc includes this.
namespace gannet::server {

using BeastRequest = boost::beast::http::request<boost::beast::http::string_body>;

std::string lower_case(std::string_view text);

// Everything but the body. The id is set; `remote` is not.
HttpRequest request_head(const BeastRequest& message);

struct Refusal {
  int status = 400;
  std::string message;
};
// What is to be answered when the parser gave up.
Refusal refusal_of(boost::system::error_code error, const HttpServerOptions& options);
// Whether an error is the parser's, and not the socket's.
bool is_parse_error(boost::system::error_code error);

// Status line and headers, without the line that ends them. `more` is sent beside the response's own headers and wins
// over those of the same name.
std::string response_head(const HttpResponse& response, const Headers& more, bool keep_alive);

// An id that nobody has had yet.
std::string new_request_id();

}  // namespace gannet::server
