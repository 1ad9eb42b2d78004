#include "server/http_host.h"

#include <algorithm>

#include "server/http_wire.h"

namespace gannet::server {
namespace {

// In lower case, without port and without the dot that ends a whole name.
std::string host_name(std::string_view host) {
  const size_t address_end = host.starts_with('[') ? host.find(']') : 0;
  host = host.substr(0, host.find(':', address_end));
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower_case(host);
}

}  // namespace

std::vector<std::string> loopback_hosts() {
  return {"localhost", "127.0.0.1", "[::1]"};
}

bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed) {
  if (allowed.empty() || host.empty()) return true;
  const auto fits = [name = host_name(host)](const std::string& entry) {
    return entry == "*" || lower_case(entry) == name;
  };
  return std::any_of(allowed.begin(), allowed.end(), fits);
}

}  // namespace gannet::server
