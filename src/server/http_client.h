#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http.h"

namespace gannet::server {

// http://host[:port][/path]
struct Url {
  std::string host;  // without brackets
  uint16_t port = 80;
  std::string path;  // without a slash at its end; may be empty

  std::string text() const;
};

// Error (invalid_input): not a URL of that form; https says that it is not supported.
Result<Url> parse_url(std::string_view text);

struct ClientRequest {
  std::string method = "GET";
  std::string path;  // behind the URL's own
  Headers headers;
  std::string body;
  // Given the body of a response with status 200 as it comes; without it, and for any other status, the response's
  // body is collected.
  std::function<void(std::string_view)> on_data;
  // Asked several times a second; false ends the request with `ClientResponse::cancelled`.
  std::function<bool()> keep_going;
};

struct ClientResponse {
  int status = 0;
  std::string body;
  bool cancelled = false;
};

// One request over a connection of its own, on the calling thread. Error (failed): the server cannot be reached, or the
// connection broke.
Result<ClientResponse> send_request(const Url& url, const ClientRequest& request);

}  // namespace gannet::server
