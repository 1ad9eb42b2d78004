#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace gannet {

// Bytes of the packed cache records (spec: model 4.1, 4.3). The formats are those of base/quantize.h.
struct RecordLayout {
  int64_t window_bytes = 0;  // window KV of one token and layer: head_dim E4M3 codes, one scale for 32
  int64_t entry_bytes = 0;   // global KV entry: head_dim E2M1 nibbles, one scale for 16
  int64_t key_bytes = 0;     // index key: index_head_dim E2M1 nibbles, one scale for 32
};
RecordLayout record_layout(const Config& config);

// What a token of context costs for good: entries and keys of all sources, a ratio-2 source counting half.
double global_bytes_per_token(const Config& config);

// Window rings of all backbone layers of one sequence.
int64_t window_state_bytes(const Config& config);

// A cache block holds `tokens` consecutive tokens of every source: for each source its entries, then its keys. One
// block, one identity: no source can hit without the others.
struct BlockLayout {
  struct Source {
    int64_t ratio = 1;
    int64_t records = 0;       // entries (and keys) in a block
    int64_t entry_offset = 0;  // bytes from the start of the block
    int64_t key_offset = 0;
  };
  int64_t tokens = 0;
  int64_t bytes = 0;
  std::vector<Source> sources = {};  // in the order of kv_source_layer_ids
};
BlockLayout block_layout(const Config& config, int64_t tokens);

}  // namespace gannet
