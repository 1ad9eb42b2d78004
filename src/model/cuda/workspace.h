#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/config.h"
#include "model/cuda/memory.h"
#include "ops/router/sm90.h"

namespace gannet {

// Buffers of one pass, device memory, for max_rows rows. Activations are bf16; what a quantiser or a norm takes is
// float.
struct CudaWorkspace {
  CudaWorkspace(const Config& config, int64_t max_rows, bool measure = false);

  // The residual streams and what hyper_apply makes of them; once for all rows, once for the kept ones.
  struct Activations {
    __nv_bfloat16* streams = nullptr;  // [rows, 4, hidden]
    float* pre = nullptr;              // [rows, 4]
    __nv_bfloat16* x = nullptr;        // [rows, hidden]: values of Q8
    __nv_bfloat16* operand = nullptr;  // [rows, hidden]
  };
  DeviceArena arena;
  Activations all, kept;
  float* post = nullptr;     // [rows, 4]
  float* mix = nullptr;      // [rows, 4, 4]
  float* partial = nullptr;  // hyper_mix's

  float* projected = nullptr;             // [rows, q_lora_rank + 512], or the compressor's [rows, 1024]
  __nv_bfloat16* latent = nullptr;        // [rows, q_lora_rank]
  __nv_bfloat16* q = nullptr;             // [rows, heads, 512]
  __nv_bfloat16* heads = nullptr;         // [rows, heads, 512]
  __nv_bfloat16* grouped = nullptr;       // [rows, o_groups * o_lora_rank]
  __nv_bfloat16* y = nullptr;             // [rows, hidden]
  std::byte* records = nullptr;           // [layers, rows] window records
  __nv_bfloat16* entry_latent = nullptr;  // [rows, 512]
  float* key_projected = nullptr;         // [rows, 128]

  float* index_q = nullptr;             // [rows, index heads, 128]
  float* index_weights = nullptr;       // [rows, index heads]
  std::byte* index = nullptr;           // scratch
  int32_t* selected = nullptr;          // [rows, index_topk]
  int32_t* selected_counts = nullptr;   // [rows]
  int32_t* candidates = nullptr;        // [rows, candidate entries]
  int32_t* candidate_counts = nullptr;  // [rows]

  float* router_logits = nullptr;  // [rows, experts]
  ops::cuda::ExpertLists lists;
  int32_t* tiles = nullptr;               // scratch
  __nv_bfloat16* inner = nullptr;         // [rows * top_k, width]
  __nv_bfloat16* shared_inner = nullptr;  // [rows, shared width]
  float* outer = nullptr;                 // [rows * top_k, hidden]
  float* shared = nullptr;                // [rows, hidden]

  std::vector<__nv_bfloat16*> engram_rows;  // of each Engram layer: [rows, columns * dim]
  float* engram_kv = nullptr;               // [rows, 5 * hidden]

  __nv_bfloat16* head_x = nullptr;    // [kHeadRows, hidden]
  float* logits = nullptr;            // [kHeadRows, vocab_size]
  float* candidate_logits = nullptr;  // [kHeadRows, 64]
  int32_t* candidate_ids = nullptr;   // [kHeadRows, 64]
  float* candidate_sums = nullptr;    // [2, kHeadRows]
};

}  // namespace gannet
