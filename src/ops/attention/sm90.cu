#include "ops/attention/sm90.h"

#include "base/check.h"
#include "ops/attention/sm90_variants.h"
#include "ops/cuda/launch.cuh"

namespace gannet::ops::cuda {
namespace {

bool aligned(const void* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 16 == 0;
}

// How many blocks share a row in attention_few; 0 stands for attention_many. Measured on an H200: clusters of the
// larger sizes must fit on the card all at once, since they hardly overlap.
int splits_of_few(const AttentionParams& p) {
  const int64_t clusters = p.rows.most * ((p.heads + 15) / 16);
  if (p.selected == nullptr) return clusters <= 56 ? 2 : 0;  // two tiles of keys
  if (clusters <= 7) return 16;
  if (clusters <= 14) return 8;
  return clusters <= 28 ? 4 : 0;
}

}  // namespace

void attention(cudaStream_t stream, const AttentionParams& p) {
  if (p.rows.most == 0) return;
  GANNET_CHECK(p.window <= 128 && aligned(p.rings, p.ring_stride) && aligned(p.chunk, 0));
  GANNET_CHECK(aligned(p.q, 0) && aligned(p.out, 0));
  GANNET_CHECK(p.selected == nullptr || aligned(p.entries.base, p.entries.block_stride));
  if (const int splits = splits_of_few(p); splits > 0) {
    attention_few(stream, p, splits);
  } else if (p.heads > 64) {
    attention_few(stream, p, 1);
  } else {
    attention_many(stream, p, 2 * p.rows.most <= kMultiprocessors ? 2 : 1);
  }
}

}  // namespace gannet::ops::cuda
