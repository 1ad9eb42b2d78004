#include "server/http_cors.h"

#include <algorithm>

namespace gannet::server {
namespace {

std::string_view host_of(std::string_view origin) {
  const auto scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

}  // namespace

Origin origin_of(const HttpRequest& request, const std::vector<std::string>& allowed) {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return Origin::none;
  const auto listed = [&](const std::string& entry) { return entry == "*" || entry == origin; };
  if (std::any_of(allowed.begin(), allowed.end(), listed)) return Origin::allowed;
  return host_of(origin) == request.header("host") ? Origin::own : Origin::foreign;
}

Headers cors_headers(const HttpRequest& request) {
  return {{"Access-Control-Allow-Origin", std::string(request.header("origin"))},
          {"Access-Control-Expose-Headers", "X-Request-Id, Request-Id, Retry-After"},
          {"Vary", "Origin"}};
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("access-control-request-method").empty();
}

HttpResponse preflight_response(const HttpRequest& request) {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE"}, {"Access-Control-Max-Age", "600"}};
  // Clients send headers of their own that mean nothing here; an allowed page may send them.
  const std::string_view wanted = request.header("access-control-request-headers");
  if (!wanted.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  return response;
}

}  // namespace gannet::server
