#include "model/rope_table.h"

#include "ops/rope/op.h"

namespace gannet {

std::vector<float> rope_table(const Config& config, RopeTable table) {
  const RopeScaling& yarn = config.rope_scaling;
  const bool compressed = table == RopeTable::compressed;
  return ops::rope_frequencies({.theta = compressed ? config.compress_rope_theta : config.rope_theta,
                                .dim = config.qk_rope_head_dim,
                                .factor = yarn.factor,
                                .beta_fast = yarn.beta_fast,
                                .beta_slow = yarn.beta_slow,
                                .original_length = compressed ? yarn.original_max_position_embeddings : 0});
}

}  // namespace gannet
