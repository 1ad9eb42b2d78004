#include <algorithm>
#include <cmath>
#include <span>

#include "base/quantize.h"
#include "ops/attention/kernels.h"
#include "ops/attention/op.h"
#include "ops/linear/kernels.h"
#include "ops/math.h"
#include "ops/record_decode/op.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

// Multiply-adds that are worth a thread of their own: some ten microseconds.
constexpr int64_t kWorthAThread = 512 * 1024;

const AttentionKernels& attention_kernels(Simd simd) {
  return simd == Simd::avx2 ? kAttentionAvx2 : kAttentionAvx512;
}

// One row's keys: window first, then entries.
struct RowKeys {
  int64_t first_position;
  int64_t window;  // keys from the window
  int64_t count;   // keys in all
};

// A few rows at a time: first all threads decode the rows' keys, then they share out the rows' heads.
class Attention {
 public:
  Attention(const Device& device, const AttentionParams& params)
      : device_(device),
        p_(params),
        linear_(*linear_kernels(device.simd)),
        kernels_(attention_kernels(device.simd)),
        decode_(record_decoders(device.simd)),
        most_keys_(prepared_cols(params.window + (params.selected != nullptr ? params.selected_stride : 0))) {}

  void run() {
    const int64_t batch = device_.pool->size();
    keys_ = scratch<struct AttentionKeysTag>(std::min(batch, p_.rows) * most_keys_ * p_.head_dim);
    for (int64_t row = 0; row < p_.rows; row += batch) {
      const int64_t rows = std::min(batch, p_.rows - row);
      decode(row, rows);
      attend(row, rows);
    }
  }

 private:
  float* keys_of(int64_t index) const { return keys_ + index * most_keys_ * p_.head_dim; }

  RowKeys row_keys(int64_t row) const {
    const int64_t position = p_.positions[row];
    const int64_t first = std::max(p_.sequences[p_.sequence_of[row]].window_from, position - p_.window + 1);
    const int64_t window = std::max<int64_t>(0, position - std::max<int64_t>(first, 0) + 1);
    return {std::max<int64_t>(first, 0), window, window + (p_.selected != nullptr ? p_.selected_counts[row] : 0)};
  }

  void decode(int64_t first_row, int64_t rows) const {
    constexpr int64_t kGrain = 64;
    device_.pool->parallel_for(rows * most_keys_, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin / most_keys_; i * most_keys_ < end; ++i) {
        const RowKeys keys = row_keys(first_row + i);
        const int64_t from = std::max<int64_t>(begin - i * most_keys_, 0);
        const int64_t to = std::min(end - i * most_keys_, keys.count);
        for (int64_t j = from; j < to; ++j) decode_key(first_row + i, keys, j, keys_of(i) + j * p_.head_dim);
      }
    });
  }

  void decode_key(int64_t row, const RowKeys& keys, int64_t j, float* out) const {
    const AttentionSequence& sequence = p_.sequences[p_.sequence_of[row]];
    if (j >= keys.window) {
      const std::byte* at = sequence.entries.at(p_.selected[row * p_.selected_stride + j - keys.window]);
      return decode_.q4nv(reinterpret_cast<const uint8_t*>(at), p_.head_dim, out);
    }
    const int64_t t = keys.first_position + j;
    const bool in_chunk = t >= sequence.chunk_start;
    const std::byte* records = in_chunk ? sequence.chunk : sequence.ring;
    const int64_t index = in_chunk ? t - sequence.chunk_start : t % p_.window;
    decode_.q8(reinterpret_cast<const uint8_t*>(records + index * q8_bytes(p_.head_dim)), p_.head_dim, out);
  }

  void attend(int64_t first_row, int64_t rows) const {
    const int64_t work = 2 * rows * p_.heads * most_keys_ * p_.head_dim;
    const int64_t parts = std::clamp<int64_t>(work / kWorthAThread, 1, device_.pool->size());
    const int64_t groups = std::min(p_.heads, (parts + rows - 1) / rows);
    const int64_t heads = (p_.heads + groups - 1) / groups;
    device_.pool->parallel_for(rows * groups, (rows * groups + parts - 1) / parts, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item % groups * heads;
        const int64_t count = std::min(heads, p_.heads - head);
        if (count > 0) attend_heads(first_row + item / groups, keys_of(item / groups), head, count);
      }
    });
  }

  void attend_heads(int64_t row, const float* keys, int64_t first_head, int64_t heads) const {
    const int64_t dim = p_.head_dim;
    const int64_t n = row_keys(row).count;
    float* q = p_.q + (row * p_.heads + first_head) * dim;
    float* out = p_.out + (row * p_.heads + first_head) * dim;
    if (n == 0) return std::fill_n(out, heads * dim, 0.0F), void();

    thread_local RopeAngle angle;
    angle.set(p_.positions[row], *p_.frequencies);
    rotate(q, heads, angle, false);
    float* scores = scratch<struct AttentionScoresTag>(heads * most_keys_);
    multiply(q, heads, keys, n, scores);
    float* totals = scratch<struct AttentionTotalsTag>(heads);
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (int64_t h = 0; h < heads; ++h) {
      totals[h] = kernels_.softmax(scores + h * most_keys_, n, scale, p_.sink[first_head + h]);
    }
    kernels_.combine(scores, most_keys_, totals, heads, keys, n, dim, out);
    rotate(out, heads, angle, true);
  }

  void rotate(float* v, int64_t heads, const RopeAngle& angle, bool inverse) const {
    const int64_t rotated_channels = 2 * static_cast<int64_t>(p_.frequencies->size());
    for (int64_t h = 0; h < heads; ++h) {
      rope_rotate(v + (h + 1) * p_.head_dim - rotated_channels, angle, inverse, Activations::fp32);
    }
    if (p_.activations == Activations::bf16) kernels_.round_to_bf16(v, heads * p_.head_dim);
  }

  // scores[h][j] = q[h] . keys[j].
  void multiply(const float* q, int64_t heads, const float* keys, int64_t n, float* scores) const {
    const int64_t width = prepared_cols(p_.head_dim);
    float* prepared = scratch<struct AttentionQueryTag>(heads * width);
    const float** x = scratch<struct AttentionQueryRowsTag, const float*>(heads);
    for (int64_t h = 0; h < heads; ++h) {
      linear_.prepare(q + h * p_.head_dim, p_.head_dim, false, prepared + h * width);
      x[h] = prepared + h * width;
    }
    const WeightMatrix weight{.format = WeightFormat::f32, .rows = n, .cols = p_.head_dim, .data = keys};
    linear_.multiply(
        {.weight = weight, .first = 0, .count = n, .x = x, .rows = heads, .y = scores, .y_stride = most_keys_});
  }

  const Device& device_;
  const AttentionParams& p_;
  const LinearKernels& linear_;
  const AttentionKernels& kernels_;
  const RecordDecoders& decode_;
  const int64_t most_keys_;  // of a row, rounded up to whole vectors
  float* keys_ = nullptr;    // [rows at work, most_keys_, head_dim]
};

}  // namespace

void attention(const Device& device, const AttentionParams& p) {
  if (p.rows == 0) return;
  if (device.simd == Simd::none) {
    return device.pool->parallel_for(p.rows, 1, [&](int64_t b, int64_t e) { attention_reference(p, b, e); });
  }
  Attention(device, p).run();
}

}  // namespace gannet::ops
