#include "server/access_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/log_context.h"
#include "server/errors.h"

namespace gannet::server {
namespace {

// Paths are ASCII. Other bytes, which need not even be UTF-8, show as they should have been sent.
std::string percent_encoded(std::string_view path) {
  std::string encoded;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    encoded += byte < 0x80 ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return encoded;
}

}  // namespace

void log_request(const RequestRecord& record) {
  constexpr std::array<std::string_view, 6> kProbes = {"/health", "/live", "/ready", "/ping", "/metrics", "/stats"};
  const bool probe = std::find(kProbes.begin(), kProbes.end(), record.path) != kProbes.end();
  const std::string path = percent_encoded(shown(record.path));
  const auto level = probe ? spdlog::level::debug : spdlog::level::info;
  log_fields(level, "request",
             {{"method", shown(record.method)},
              {"path", std::string_view(path)},
              {"status", int64_t{record.status}},
              {"seconds", record.seconds},
              {"bytes", static_cast<int64_t>(record.bytes)},
              {"tokens", record.tokens},
              {"remote", std::string_view(record.remote)}});
}

}  // namespace gannet::server
