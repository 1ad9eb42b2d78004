#include "ops/attention/sm90.h"

#include "base/check.h"
#include "ops/attention/sm90_variants.h"

namespace gannet::ops::cuda {
namespace {

constexpr int64_t kMultiprocessors = 132;

}  // namespace

int64_t attention_scratch(int64_t, int64_t) {
  return 0;
}

void attention(cudaStream_t stream, const AttentionParams& p) {
  if (p.rows.most == 0) return;
  GANNET_CHECK(p.window <= 128);
  const int64_t blocks = p.rows.most * ((p.heads + 15) / 16);
  const int64_t most_splits = p.selected != nullptr ? 16 : 4;
  int splits = 1;
  while (2 * splits <= most_splits && 2 * splits * blocks <= 2 * kMultiprocessors) splits *= 2;
  attention_few(stream, p, splits);
}

}  // namespace gannet::ops::cuda
