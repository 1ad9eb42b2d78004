#include "server/access_log.h"

#include <algorithm>
#include <array>

#include "base/log_context.h"
#include "server/errors.h"

namespace gannet::server {

void log_request(const RequestRecord& record) {
  constexpr std::array<std::string_view, 6> kProbes = {"/health", "/live", "/ready", "/ping", "/metrics", "/stats"};
  const bool probe = std::find(kProbes.begin(), kProbes.end(), record.path) != kProbes.end();
  const auto level = probe ? spdlog::level::debug : spdlog::level::info;
  log_fields(level, "request",
             {{"method", shown(record.method)},
              {"path", shown(record.path)},
              {"status", int64_t{record.status}},
              {"seconds", record.seconds},
              {"bytes", static_cast<int64_t>(record.bytes)},
              {"tokens", record.tokens},
              {"remote", std::string_view(record.remote)}});
}

}  // namespace gannet::server
