#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"

namespace gannet {

// Sliding windows of sequences at block boundaries, kept for exact prefix hits when windows are not replayed. The ones
// used least recently give way. Belongs to the engine's thread; only the runner touches the bytes, in the order in
// which steps were planned, so that a place may be given away while an earlier step still reads it.
class WindowStore {
 public:
  // `bytes` of each snapshot (window_state_bytes).
  WindowStore(int64_t bytes, int64_t count);

  int64_t count() const { return static_cast<int64_t>(places_.size()); }
  int64_t bytes() const { return bytes_; }
  std::byte* data(int32_t place) { return memory_.get() + place * bytes_; }

  // The place of the windows behind that block, which then count as just used.
  std::optional<int32_t> find(const BlockHash& hash);
  // So they count again, for somebody who is yet to read them; in time, before as many as there are have been taken.
  void touch(int32_t place) { order_.splice(order_.end(), order_, places_[place].turn); }
  // A place to write to: nobody finds it before publish() or release() is called. Nothing when all are being written.
  std::optional<int32_t> take();
  void publish(int32_t place, const BlockHash& hash);
  void release(int32_t place);
  void forget();

 private:
  struct Place {
    std::optional<BlockHash> hash;
    std::list<int32_t>::iterator turn;  // in order_, unless it is being written
  };

  int64_t bytes_;
  std::unique_ptr<std::byte[]> memory_;  // left uninitialised, so that unused places cost nothing
  std::vector<Place> places_;
  std::list<int32_t> order_;  // the next to be taken first
  std::unordered_map<BlockHash, int32_t> index_;
};

}  // namespace gannet
