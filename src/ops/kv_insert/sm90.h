#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/packed_matrix.h"
#include "ops/cuda/rows.h"

namespace gannet::ops::cuda {

// Rotated channels are the last 64 of a head or record: 32 frequencies in device memory. Angles are fp32(position) *
// fp32(frequency), taken as exact (ops/rope/op.h): sincosf of the full range, no fast intrinsics.
inline constexpr int kRopePairs = 32;

// One launch behind the merged product of wq_a and wkv: the query latent's norm and Q8, and the window record of each
// row (ops/kv_insert/op.h, insert_window).
struct InsertWindowParams {
  const float* projected = nullptr;  // [most, stride]: latent [latent_size], then kv [512]
  int64_t stride = 0;
  Rows rows;
  int64_t latent_size = 0;  // a multiple of 32
  const __nv_bfloat16* latent_norm = nullptr;
  const __nv_bfloat16* kv_norm = nullptr;
  float norm_eps = 0;
  const float* frequencies = nullptr;  // [32]
  __nv_bfloat16* latent = nullptr;     // [most, latent_stride]: values of Q8(RMSNorm(latent))
  int64_t latent_stride = 0;
  std::byte* records = nullptr;  // [most] window records of 528 bytes: this pass's own rows, this layer's
};
void insert_window(cudaStream_t stream, const InsertWindowParams& params);

// Behind the last layer of a half: the last rows of each sequence go into the rings of all its layers.
struct KeepWindowsParams {
  const std::byte* records = nullptr;  // [layers][layer_stride]: each layer's records of this pass
  int64_t layer_stride = 0;            // bytes
  int64_t first_layer = 0;             // number of the first one's ring
  int64_t layers = 0;
  Rows rows;
  int64_t window = 0;
  std::byte* rings = nullptr;  // [slots][all layers][window] records
  int64_t slot_stride = 0;     // bytes
};
void keep_windows(cudaStream_t stream, const KeepWindowsParams& params);

// Global entries of a source layer (ops/kv_insert/op.h, insert_global): pooled over `ratio` tokens (1 or 2),
// normalised; entries are rotated and packed (288 bytes). `latent` gets the normalised latent, rounded to bf16, at the
// row that completes a group; other rows of it are zeroed. Pending halves of pairs are read and left in `pending`.
struct InsertEntriesParams {
  const float* projected = nullptr;  // [most, stride]: a [512], and at ratio 2 the gate [512]
  int64_t stride = 0;
  int64_t ratio = 1;
  Rows rows;
  const __nv_bfloat16* norm = nullptr;  // [512]
  float norm_eps = 0;
  const float* frequencies = nullptr;
  float* pending = nullptr;  // [slots][pending_stride]: (a, g) [2][512] of this source
  int64_t pending_stride = 0;
  Records entries;
  __nv_bfloat16* latent = nullptr;  // [most, 512]
};
void insert_entries(cudaStream_t stream, const InsertEntriesParams& params);

// Index keys of the groups completed by these rows, behind the product of `latent` with indexer.wk.
struct InsertKeysParams {
  const float* projected = nullptr;  // [most, 128]
  int64_t ratio = 1;
  Rows rows;
  const __nv_bfloat16* norm = nullptr;  // [128]
  float norm_eps = 0;
  const float* frequencies = nullptr;
  Records keys;  // 68 bytes
};
void insert_keys(cudaStream_t stream, const InsertKeysParams& params);

}  // namespace gannet::ops::cuda
