#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/histogram.h"
#include "engine/stats.h"
#include "server/http.h"

// What a Prometheus server reads: the text format 0.0.4, under the names of vLLM's metrics where they mean the same.
namespace gannet::server {

// Requests by handler, method and status. Callable from any thread.
class HttpMetrics {
 public:
  // `handler`: one of few names, not the path as the client sent it.
  void observe(std::string_view handler, const RequestRecord& record);

  struct Key {
    std::string handler;
    std::string method;
    int status = 0;
    bool operator<(const Key& other) const {
      return std::tie(handler, method, status) < std::tie(other.handler, other.method, other.status);
    }
  };
  std::map<Key, Histogram> seconds() const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, Histogram> seconds_;
};

// What became of tool calls that clients sent back: their text as it was sampled went into the prompt, or could not.
struct ToolReplayStats {
  int64_t spliced = 0;
  int64_t mismatched = 0;
  int64_t unknown = 0;
};

struct MetricsSource {
  std::string model_name;
  const EngineStats* engine = nullptr;           // null while the model is loaded
  const ToolReplayStats* tool_replay = nullptr;  // null: none
  const HttpMetrics* http = nullptr;             // null: none
};

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
std::string metrics_text(const MetricsSource& source);

}  // namespace gannet::server
