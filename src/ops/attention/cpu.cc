#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

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
// Rows that share the decoded keys of their windows; all keys at work stay in L2.
constexpr int64_t kTileRows = 16;

const AttentionKernels& attention_kernels(Simd simd) {
  return simd == Simd::avx2 ? kAttentionAvx2 : kAttentionAvx512;
}

// Rows at consecutive positions of one sequence.
struct Tile {
  int64_t first_row;
  int64_t rows;
};

// Window positions [first, end) that a row sees.
struct Window {
  int64_t first;
  int64_t end;
  int64_t count() const { return end - first; }
};

// Enough rows for all threads: each takes tiles of rows, which share their windows' keys. Fewer rows: first all threads
// decode the rows' keys, then they share out the rows' heads.
class Attention {
 public:
  Attention(const Device& device, const AttentionParams& params)
      : device_(device),
        p_(params),
        linear_(*linear_kernels(device.simd)),
        kernels_(attention_kernels(device.simd)),
        decode_(record_decoders(device.simd)),
        // Not a power of two, so that the same channels of many keys do not meet in the same lines of the cache.
        key_stride_(params.head_dim + 16),
        most_entries_(params.selected != nullptr ? params.selected_stride : 0),
        most_keys_(prepared_cols(params.window + most_entries_)) {}

  void run() {
    if (p_.rows >= device_.pool->size()) {
      run_tiles();
    } else {
      run_shared();
    }
  }

 private:
  // ---- many rows ----

  void run_tiles() const {
    thread_local std::vector<Tile> buffer;
    buffer.clear();
    const int64_t most = std::min<int64_t>(kTileRows, p_.rows / device_.pool->size());
    for (int64_t row = 0; row < p_.rows; ++row) {
      const bool joins = row > 0 && p_.sequence_of[row] == p_.sequence_of[row - 1] &&
                         p_.positions[row] == p_.positions[row - 1] + 1 && buffer.back().rows < most;
      if (joins) {
        ++buffer.back().rows;
      } else {
        buffer.push_back({row, 1});
      }
    }
    const std::span<const Tile> tiles(buffer);
    std::atomic<size_t> next{0};
    device_.pool->run([&](int) {
      for (size_t i = next.fetch_add(1); i < tiles.size(); i = next.fetch_add(1)) attend_tile(tiles[i]);
    });
  }

  void attend_tile(const Tile& tile) const {
    float* keys = scratch<struct AttentionTileTag>((p_.window + kTileRows + most_entries_) * key_stride_);
    const int64_t last_row = tile.first_row + tile.rows - 1;
    const Window all{window(tile.first_row).first, window(last_row).end};
    for (int64_t t = all.first; t < all.end; ++t) {
      if (t + kAhead < all.end) prefetch(position_record(tile.first_row, t + kAhead), q8_bytes(p_.head_dim));
      decode_.q8(position_record(tile.first_row, t), p_.head_dim, keys + (t - all.first) * key_stride_);
    }
    float* entries = keys + std::max<int64_t>(0, all.count()) * key_stride_;
    for (int64_t row = tile.first_row; row <= last_row; ++row) {
      for (int64_t i = 0; i < entry_count(row); ++i) {
        if (i + kAhead < entry_count(row)) prefetch(entry_record(row, i + kAhead), q4nv_bytes(p_.head_dim));
        decode_.q4nv(entry_record(row, i), p_.head_dim, entries + i * key_stride_);
      }
      const Window own = window(row);
      attend(row, {keys + (own.first - all.first) * key_stride_, own.count()}, {entries, entry_count(row)}, 0,
             p_.heads);
    }
  }

  // ---- few rows ----

  void run_shared() const {
    float* keys = scratch<struct AttentionKeysTag>(p_.rows * most_keys_ * key_stride_);
    const auto keys_of = [&](int64_t row) { return keys + row * most_keys_ * key_stride_; };
    constexpr int64_t kGrain = 64;
    device_.pool->parallel_for(p_.rows * most_keys_, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin / most_keys_; row * most_keys_ < end; ++row) {
        const int64_t from = std::max<int64_t>(begin - row * most_keys_, 0);
        decode_keys(row, from, end - row * most_keys_, keys_of(row));
      }
    });

    const int64_t work = 2 * p_.rows * p_.heads * most_keys_ * p_.head_dim;
    const int64_t parts = std::clamp<int64_t>(work / kWorthAThread, 1, device_.pool->size());
    const int64_t groups = std::min(p_.heads, (parts + p_.rows - 1) / p_.rows);
    const int64_t heads = (p_.heads + groups - 1) / groups;
    const int64_t items = p_.rows * groups;
    device_.pool->parallel_for(items, (items + parts - 1) / parts, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item / groups;
        const int64_t head = item % groups * heads;
        const int64_t seen = window(row).count();
        const KeySegment entries{keys_of(row) + seen * key_stride_, entry_count(row)};
        if (head < p_.heads) attend(row, {keys_of(row), seen}, entries, head, std::min(heads, p_.heads - head));
      }
    });
  }

  // The row's keys of numbers [from, to), window first; there may be fewer.
  void decode_keys(int64_t row, int64_t from, int64_t to, float* keys) const {
    const Window own = window(row);
    to = std::min(to, own.count() + entry_count(row));
    for (int64_t j = from; j < to; ++j) {
      float* key = keys + j * key_stride_;
      if (j < own.count()) {
        decode_.q8(position_record(row, own.first + j), p_.head_dim, key);
      } else {
        decode_.q4nv(entry_record(row, j - own.count()), p_.head_dim, key);
      }
    }
  }

  // ---- both ----

  Window window(int64_t row) const {
    const int64_t position = p_.positions[row];
    const int64_t from = p_.sequences[p_.sequence_of[row]].window_from;
    const int64_t first = std::max<int64_t>(0, std::max(from, position - p_.window + 1));
    return {first, std::max(first, position + 1)};
  }

  int64_t entry_count(int64_t row) const { return p_.selected != nullptr ? p_.selected_counts[row] : 0; }

  const uint8_t* entry_record(int64_t row, int64_t i) const {
    const PagedRecords& entries = p_.sequences[p_.sequence_of[row]].entries;
    return reinterpret_cast<const uint8_t*>(entries.at(p_.selected[row * p_.selected_stride + i]));
  }

  const uint8_t* position_record(int64_t row, int64_t t) const {
    const AttentionSequence& sequence = p_.sequences[p_.sequence_of[row]];
    const bool in_chunk = t >= sequence.chunk_start;
    const std::byte* records = in_chunk ? sequence.chunk : sequence.ring;
    const int64_t index = in_chunk ? t - sequence.chunk_start : t % p_.window;
    return reinterpret_cast<const uint8_t*>(records + index * q8_bytes(p_.head_dim));
  }

  // Records are too short and too scattered for the processor to foresee the next ones.
  static constexpr int64_t kAhead = 8;
  static void prefetch(const uint8_t* record, int64_t bytes) {
    constexpr int64_t kLine = 64;
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(record + i);
  }

  void attend(int64_t row, KeySegment seen, KeySegment entries, int64_t first_head, int64_t heads) const {
    const int64_t dim = p_.head_dim;
    const int64_t n = seen.count + entries.count;
    float* q = p_.q + (row * p_.heads + first_head) * dim;
    float* out = p_.out + (row * p_.heads + first_head) * dim;
    if (n == 0) return std::fill_n(out, heads * dim, 0.0F), void();

    thread_local RopeAngle angle;
    angle.set(p_.positions[row], *p_.frequencies);
    rotate(q, heads, angle, false);
    const int64_t width = prepared_cols(dim);
    float* prepared = scratch<struct AttentionQueryTag>(heads * width);
    for (int64_t h = 0; h < heads; ++h) linear_.prepare(q + h * dim, dim, false, prepared + h * width);
    float* scores = scratch<struct AttentionScoresTag>(heads * most_keys_);
    multiply(prepared, width, heads, seen, scores);
    multiply(prepared, width, heads, entries, scores + seen.count);
    float* totals = scratch<struct AttentionTotalsTag>(heads);
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (int64_t h = 0; h < heads; ++h) {
      totals[h] = kernels_.softmax(scores + h * most_keys_, n, scale, p_.sink[first_head + h]);
    }
    kernels_.combine({.weights = scores,
                      .weight_stride = most_keys_,
                      .totals = totals,
                      .heads = heads,
                      .segments = {seen, entries},
                      .key_stride = key_stride_,
                      .dim = dim,
                      .out = out});
    kernels_.restore_order(out, heads * dim);
    rotate(out, heads, angle, true);
  }

  // scores[h][j] = q[h] . keys[j].
  void multiply(const float* q, int64_t width, int64_t heads, const KeySegment& segment, float* scores) const {
    linear_.dots({.x = q,
                  .x_stride = width,
                  .rows = heads,
                  .w = segment.keys,
                  .w_stride = key_stride_,
                  .count = segment.count,
                  .cols = p_.head_dim,
                  .y = scores,
                  .y_stride = most_keys_});
  }

  void rotate(float* v, int64_t heads, const RopeAngle& angle, bool inverse) const {
    const int64_t rotated_channels = 2 * static_cast<int64_t>(p_.frequencies->size());
    for (int64_t h = 0; h < heads; ++h) {
      rope_rotate(v + (h + 1) * p_.head_dim - rotated_channels, angle, inverse, Activations::fp32);
    }
    if (p_.activations == Activations::bf16) kernels_.round_to_bf16(v, heads * p_.head_dim);
  }

  const Device& device_;
  const AttentionParams& p_;
  const LinearKernels& linear_;
  const AttentionKernels& kernels_;
  const RecordDecoders& decode_;
  const int64_t key_stride_;    // of decoded keys, in floats
  const int64_t most_entries_;  // of a row
  const int64_t most_keys_;     // of a row, rounded up to whole vectors
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
