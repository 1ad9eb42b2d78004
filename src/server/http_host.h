#pragma once

#include <string>
#include <string_view>
#include <vector>

// Which names of the server requests may use. A page whose name was made to mean this machine (DNS rebinding) counts as
// a page of this server for a browser, but its requests show that name.
namespace gannet::server {

// What a server that only this machine can reach answers to.
std::vector<std::string> loopback_hosts();

// `host`: a Host header, with or without a port; without one everything may come in. `allowed`: names without ports,
// numeric IPv6 addresses in brackets; none, or "*": all.
bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed);

}  // namespace gannet::server
