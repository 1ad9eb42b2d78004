#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

// Which web pages may use the server from a browser.
namespace gannet::server {

enum class Origin {
  none,     // not sent by a web page, or by one that does not say so
  own,      // a page of this server
  allowed,  // of another one that the operator listed
  foreign,
};

// `allowed`: origins as browsers send them ("https://example.org"); "*" stands for all.
Origin origin_of(const HttpRequest& request, const std::vector<std::string>& allowed);

// Headers that let the page of an allowed origin read the answer.
Headers cors_headers(const HttpRequest& request);

// Whether a browser asks if it may send a request; only of use for an allowed origin.
bool is_preflight(const HttpRequest& request);
HttpResponse preflight_response(const HttpRequest& request);

}  // namespace gannet::server
