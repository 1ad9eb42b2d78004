#include "cache/record_layout.h"

#include "base/error.h"
#include "base/quantize.h"

namespace gannet {

RecordLayout record_layout(const Config& config) {
  return {.window_bytes = q8_bytes(config.head_dim),
          .entry_bytes = q4nv_bytes(config.head_dim),
          .key_bytes = q4mx_bytes(config.index_head_dim)};
}

double global_bytes_per_token(const Config& config) {
  const RecordLayout layout = record_layout(config);
  double bytes = 0;
  for (const int64_t layer : config.kv_source_layer_ids) {
    bytes +=
        static_cast<double>(layout.entry_bytes + layout.key_bytes) / static_cast<double>(config.compress_ratios[layer]);
  }
  return bytes;
}

int64_t window_state_bytes(const Config& config) {
  return config.num_hidden_layers * config.sliding_window * record_layout(config).window_bytes;
}

BlockLayout block_layout(const Config& config, int64_t tokens) {
  const RecordLayout records = record_layout(config);
  BlockLayout block{.tokens = tokens};
  for (const int64_t layer : config.kv_source_layer_ids) {
    const int64_t ratio = config.compress_ratios[layer];
    GANNET_CHECK(tokens % ratio == 0);
    BlockLayout::Source source{.ratio = ratio, .records = tokens / ratio, .entry_offset = block.bytes};
    source.key_offset = source.entry_offset + source.records * records.entry_bytes;
    block.bytes = source.key_offset + source.records * records.key_bytes;
    block.sources.push_back(source);
  }
  return block;
}

}  // namespace gannet
