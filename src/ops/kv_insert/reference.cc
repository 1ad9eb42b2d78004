#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/quantize.h"
#include "ops/kv_insert/op.h"
#include "ops/math.h"
#include "ops/record_encode/op.h"
#include "ops/rms_norm/op.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

uint8_t* bytes(std::byte* p) {
  return reinterpret_cast<uint8_t*>(p);
}

// One channel of a token pair: the average of a0 and a1 weighted by the softmax of their gates.
float pooled(float a0, float g0, float a1, float g1) {
  const float top = std::max(g0, g1);
  const float w0 = std::exp(g0 - top);
  const float w1 = std::exp(g1 - top);
  const float sum = w0 + w1;
  return a0 * (w0 / sum) + a1 * (w1 / sum);
}

// A group of tokens whose entry is due: its latent is in the row of the same number.
struct Group {
  const InsertSequence* sequence;
  int64_t index;  // of the entry
};

// Pools all complete groups of a sequence into rows of `latents`, and keeps a trailing half pair.
void pool_sequence(const InsertGlobalParams& p, const InsertSequence& sequence, float* latents,
                   std::vector<Group>& groups) {
  for (int64_t i = 0; i < sequence.rows; ++i) {
    const int64_t position = sequence.start + i;
    const float* a = p.a + (sequence.first_row + i) * p.head_dim;
    float* latent = latents + static_cast<int64_t>(groups.size()) * p.head_dim;
    if (p.ratio == 1) {
      std::copy_n(a, p.head_dim, latent);
      groups.push_back({&sequence, position});
      continue;
    }
    const float* gate = p.gate + (sequence.first_row + i) * p.head_dim;
    float* pending_a = sequence.pending;
    float* pending_gate = sequence.pending + p.head_dim;
    if (position % 2 == 0) {
      std::copy_n(a, p.head_dim, pending_a);
      std::copy_n(gate, p.head_dim, pending_gate);
      continue;
    }
    for (int64_t c = 0; c < p.head_dim; ++c) {
      latent[c] = pooled(pending_a[c], pending_gate[c], a[c], gate[c]);
    }
    groups.push_back({&sequence, position / 2});
  }
}

// Writes the key from its projection and the entry from its normalised latent; both are used up.
void write_records(const InsertGlobalParams& p, const RecordEncoders& encode, const Group& group, float* key,
                   float* latent) {
  RopeAngle angle;
  angle.set(group.index * p.ratio, *p.frequencies);
  const int64_t rotated = 2 * static_cast<int64_t>(p.frequencies->size());

  rms_norm_row(key, key, p.index_dim, p.index_norm, p.norm_eps, Activations::fp32);
  rope_rotate(key + p.index_dim - rotated, angle, false, Activations::fp32);
  encode.q4mx(key, p.index_dim, bytes(group.sequence->keys.at(group.index)));

  rope_rotate(latent + p.head_dim - rotated, angle, false, Activations::fp32);
  encode.q4nv(latent, p.head_dim, bytes(group.sequence->entries.at(group.index)));
}

// `project` computes the index keys of all latents; `for_each` runs a range of groups.
template <class Project, class ForEach>
void insert_groups(const InsertGlobalParams& p, const RecordEncoders& encode, const Project& project,
                   const ForEach& for_each) {
  GANNET_CHECK(p.ratio == 1 || p.ratio == 2);
  int64_t most = 0;
  for (int64_t i = 0; i < p.sequence_count; ++i) most += p.sequences[i].rows / p.ratio + 1;
  float* latents = scratch<struct LatentTag>(most * p.head_dim);
  float* operands = scratch<struct OperandTag>(most * p.head_dim);  // the latents as the key projection takes them
  float* keys = scratch<struct KeyTag>(most * p.index_dim);
  std::vector<Group> groups;
  groups.reserve(most);
  for (int64_t i = 0; i < p.sequence_count; ++i) pool_sequence(p, p.sequences[i], latents, groups);

  const auto count = static_cast<int64_t>(groups.size());
  for_each(count, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      float* latent = latents + g * p.head_dim;
      rms_norm_row(latent, latent, p.head_dim, p.norm, p.norm_eps, Activations::fp32);
      for (int64_t c = 0; c < p.head_dim; ++c) operands[g * p.head_dim + c] = rounded(latent[c], p.activations);
    }
  });
  project(LinearParams{.x = operands,
                       .x_stride = p.head_dim,
                       .rows = count,
                       .weight = p.index_key,
                       .outputs = p.index_dim,
                       .y = keys,
                       .y_stride = p.index_dim,
                       .activations = Activations::fp32});
  for_each(count, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      write_records(p, encode, groups[g], keys + g * p.index_dim, latents + g * p.head_dim);
    }
  });
}

void insert_rows(const InsertWindowParams& p, const RecordEncoders& encode, int64_t begin, int64_t end) {
  float* kv = scratch<struct WindowTag>(p.head_dim);
  thread_local RopeAngle angle;
  for (int64_t r = begin; r < end; ++r) {
    rms_norm_row(p.kv + r * p.head_dim, kv, p.head_dim, p.norm, p.norm_eps, Activations::fp32);
    angle.set(p.positions[r], *p.frequencies);
    rope_rotate(kv + p.head_dim - 2 * static_cast<int64_t>(p.frequencies->size()), angle, false, Activations::fp32);
    encode.q8(kv, p.head_dim, bytes(p.records + r * q8_bytes(p.head_dim)));
  }
}

}  // namespace

void insert_window_reference(const InsertWindowParams& p, int64_t begin, int64_t end) {
  insert_rows(p, kRecordEncodersReference, begin, end);
}

void insert_window(const Device& device, const InsertWindowParams& p) {
  const RecordEncoders& encode = record_encoders(device.simd);
  device.pool->parallel_for(p.rows, 1, [&](int64_t begin, int64_t end) { insert_rows(p, encode, begin, end); });
}

void insert_global_reference(const InsertGlobalParams& p) {
  insert_groups(p, kRecordEncodersReference, linear_reference, [](int64_t count, const auto& body) { body(0, count); });
}

void insert_global(const Device& device, const InsertGlobalParams& p) {
  insert_groups(
      p, record_encoders(device.simd), [&](const LinearParams& linear_params) { linear(device, linear_params); },
      [&](int64_t count, const auto& body) { device.pool->parallel_for(count, 1, body); });
}

}  // namespace gannet::ops
