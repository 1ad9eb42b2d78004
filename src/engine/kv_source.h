#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"

namespace gannet {

struct LiveRequest;

// Global KV that lies elsewhere: in another engine, in host memory, on disk. Called on the engine's thread.
class KvSource {
 public:
  struct Match {
    int64_t tokens = 0;    // leading tokens of the request whose KV it has
    bool windows = false;  // and the windows behind them
  };
  virtual ~KvSource() = default;
  virtual Match match(const LiveRequest& request) = 0;
  // Starts to fill the blocks from token `from` to `to`; Scheduler::kv_arrived tells when that is done.
  virtual void load(RequestId id, std::span<const int32_t> blocks, int64_t from, int64_t to) = 0;
  // Stops a load, if there is one. When this returns, nothing is written any more.
  virtual void abandon(RequestId id) = 0;
};

}  // namespace gannet
