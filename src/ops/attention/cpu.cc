#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <utility>
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

// What both ways of computing have in common: where the keys are, and the rotation of queries and outputs.
class AttentionRows {
 protected:
  AttentionRows(const Device& device, const AttentionParams& params)
      : device_(device),
        p_(params),
        kernels_(attention_kernels(device.simd)),
        most_entries_(params.selected != nullptr ? params.selected_stride : 0) {}

  // Runs of rows that share decoded keys; valid until the calling thread's next call.
  std::span<const Tile> tiles() const {
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
    return buffer;
  }

  // Runs body(tile, the thread's next tile or null) for each, on all threads.
  template <class Body>
  void for_each_tile(const Body& body) const {
    const std::span<const Tile> all = tiles();
    std::atomic<size_t> next{0};
    device_.pool->run([&](int) {
      for (size_t i = next.fetch_add(1); i < all.size();) {
        const size_t ahead = next.fetch_add(1);
        body(all[i], ahead < all.size() ? &all[ahead] : nullptr);
        i = ahead;
      }
    });
  }

  // Runs body(row, first head, heads) for groups of heads, as many as are worth a thread of their own.
  template <class Body>
  void for_each_head_group(int64_t keys, const Body& body) const {
    const int64_t work = 2 * p_.rows * p_.heads * keys * p_.head_dim;
    const int64_t parts = std::clamp<int64_t>(work / kWorthAThread, 1, device_.pool->size());
    const int64_t groups = std::min(p_.heads, (parts + p_.rows - 1) / p_.rows);
    const int64_t heads = (p_.heads + groups - 1) / groups;
    const int64_t items = p_.rows * groups;
    device_.pool->parallel_for(items, (items + parts - 1) / parts, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item % groups * heads;
        if (head < p_.heads) body(item / groups, head, std::min(heads, p_.heads - head));
      }
    });
  }

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

  void rotate(float* v, int64_t heads, const RopeAngle& angle, bool inverse) const {
    const int64_t rotated_channels = 2 * static_cast<int64_t>(p_.frequencies->size());
    for (int64_t h = 0; h < heads; ++h) {
      rope_rotate(v + (h + 1) * p_.head_dim - rotated_channels, angle, inverse, Activations::fp32);
    }
    if (p_.activations == Activations::bf16) kernels_.round_to_bf16(v, heads * p_.head_dim);
  }

  float score_scale() const { return 1.0F / std::sqrt(static_cast<float>(p_.head_dim)); }
  float* query(int64_t row, int64_t head) const { return p_.q + (row * p_.heads + head) * p_.head_dim; }
  float* output(int64_t row, int64_t head) const { return p_.out + (row * p_.heads + head) * p_.head_dim; }

  const RopeAngle& angle_of(int64_t row) const {
    thread_local RopeAngle angle;
    angle.set(p_.positions[row], *p_.frequencies);
    return angle;
  }

  const Device& device_;
  const AttentionParams& p_;
  const AttentionKernels& kernels_;
  const int64_t most_entries_;  // of a row
};

// The vectors' way. Enough rows for all threads: each takes tiles of rows, which share their windows' keys. Fewer rows:
// first all threads decode the rows' keys, then they share out the rows' heads.
class Attention : public AttentionRows {
 public:
  Attention(const Device& device, const AttentionParams& params)
      : AttentionRows(device, params),
        linear_(*linear_kernels(device.simd)),
        decode_(record_decoders(device.simd)),
        // Not a power of two, so that the same channels of many keys do not meet in the same lines of the cache.
        key_stride_(params.head_dim + 16),
        most_keys_(prepared_cols(params.window + most_entries_)) {}

  void run() {
    if (p_.rows >= device_.pool->size()) {
      for_each_tile([&](const Tile& tile, const Tile*) { attend_tile(tile); });
    } else {
      run_shared();
    }
  }

  // Heads [first_head, first_head + heads) of a row whose queries are rotated, by the calling thread alone.
  void attend_rotated(int64_t row, int64_t first_head, int64_t heads) const {
    float* keys = scratch<struct AttentionRowKeysTag>(most_keys_ * key_stride_);
    decode_keys(row, 0, most_keys_, keys);
    const int64_t seen = window(row).count();
    attend_rotated(row, {keys, seen}, {keys + seen * key_stride_, entry_count(row)}, first_head, heads);
  }

 private:
  // ---- many rows ----

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

    for_each_head_group(most_keys_, [&](int64_t row, int64_t head, int64_t heads) {
      const int64_t seen = window(row).count();
      attend(row, {keys_of(row), seen}, {keys_of(row) + seen * key_stride_, entry_count(row)}, head, heads);
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

  void attend(int64_t row, KeySegment seen, KeySegment entries, int64_t first_head, int64_t heads) const {
    rotate(query(row, first_head), heads, angle_of(row), false);
    attend_rotated(row, seen, entries, first_head, heads);
  }

  void attend_rotated(int64_t row, KeySegment seen, KeySegment entries, int64_t first_head, int64_t heads) const {
    const int64_t dim = p_.head_dim;
    const int64_t n = seen.count + entries.count;
    const float* q = query(row, first_head);
    float* out = output(row, first_head);
    if (n == 0) return std::fill_n(out, heads * dim, 0.0F), void();

    const int64_t width = prepared_cols(dim);
    float* prepared = scratch<struct AttentionQueryTag>(heads * width);
    for (int64_t h = 0; h < heads; ++h) linear_.prepare(q + h * dim, dim, false, prepared + h * width);
    float* scores = scratch<struct AttentionScoresTag>(heads * most_keys_);
    multiply(prepared, width, heads, seen, scores);
    multiply(prepared, width, heads, entries, scores + seen.count);
    float* totals = scratch<struct AttentionTotalsTag>(heads);
    for (int64_t h = 0; h < heads; ++h) {
      totals[h] = kernels_.softmax(scores + h * most_keys_, n, score_scale(), p_.sink[first_head + h]);
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
    rotate(out, heads, angle_of(row), true);
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

  const LinearKernels& linear_;
  const RecordDecoders& decode_;
  const int64_t key_stride_;  // of decoded keys, in floats
  const int64_t most_keys_;   // of a row, rounded up to whole vectors
};

// The matrix units' way, for queries that are bf16. Keys are taken in blocks: window keys by their positions (a block
// begins at a multiple of its size), entries as they come, so that a row's blocks depend on the row alone. A row's
// scores lie in one array, in which what it does not see has no weight.
class MatrixAttention : public AttentionRows {
 public:
  MatrixAttention(const Device& device, const AttentionParams& params)
      : AttentionRows(device, params),
        by_vectors_(device, params),
        entry_blocks_(blocks_of(most_entries_)),
        score_stride_((blocks_of(params.window) + 1 + entry_blocks_) * kKeyBlock),
        block_words_(key_block_words(params.head_dim)) {}

  void run() {
    if (p_.rows >= device_.pool->size()) {
      for_each_tile([&](const Tile& tile, const Tile* next) {
        kMatrixAttention.begin();
        attend_tile(tile, next);
        kMatrixAttention.end();
      });
    } else {
      run_shared();
    }
  }

 private:
  static constexpr int64_t blocks_of(int64_t keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

  // Blocks [first, end) of window keys, counted from position 0.
  struct Blocks {
    int64_t first;
    int64_t end;
    int64_t count() const { return end - first; }
  };
  static Blocks blocks(const Window& window) {
    const int64_t first = window.first / kKeyBlock;
    return {first, window.count() > 0 ? blocks_of(window.end) : first};
  }

  // The columns (heads of rows) that some blocks meet, and where their scores go.
  struct Columns {
    const uint16_t* queries;
    float** scores;  // [groups * kColumnGroup]
    int64_t groups;
  };

  // ---- many rows ----

  void attend_tile(const Tile& tile, const Tile* next_tile) const {
    const int64_t columns = tile.rows * p_.heads;
    const int64_t groups = (columns + kColumnGroup - 1) / kColumnGroup;
    const uint16_t* queries = pack(tile.first_row, tile.rows);
    float* scores = scratch<struct MatrixScoresTag>(columns * score_stride_);
    float** to = scratch<struct MatrixScoresOfColumnsTag, float*>(groups * kColumnGroup);
    const Window all{window(tile.first_row).first, window(tile.first_row + tile.rows - 1).end};
    const Blocks seen = blocks(all);
    const int64_t most = blocks_of(p_.window + kTileRows) + 1;
    uint16_t* values = scratch<struct MatrixValuesTag, uint16_t>((most + entry_blocks_) * block_words_);
    uint32_t* bad = scratch<struct MatrixBadTag, uint32_t>(most + entry_blocks_);

    Records next = seen.count() > 0 ? window_records(tile.first_row, seen.first, all) : Records{};
    for (int64_t b = seen.first; b < seen.end; ++b) {
      std::fill_n(to, groups * kColumnGroup, nullptr);
      for (int64_t c = 0; c < columns; ++c) {
        const Blocks own = blocks(window(tile.first_row + c / p_.heads));
        if (b >= own.first && b < own.end) to[c] = scores + c * score_stride_ + (b - own.first) * kKeyBlock;
      }
      const Records records = std::exchange(
          next, b + 1 < seen.end ? window_records(tile.first_row, b + 1, all) : entry_records(tile.first_row, 0));
      bad[b - seen.first] = key_block(records, next, {queries, to, groups}, values + (b - seen.first) * block_words_);
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = tile.first_row + r;
      const Blocks own = blocks(window(row));
      const Tile* after = r + 1 == tile.rows ? next_tile : nullptr;
      const int64_t first_group = r * p_.heads / kColumnGroup;
      const int64_t end_group = ((r + 1) * p_.heads + kColumnGroup - 1) / kColumnGroup;
      const Columns columns_of_row{queries + first_group * packed_query_words(p_.head_dim), to,
                                   end_group - first_group};
      for (int64_t b = 0; b < blocks_of(entry_count(row)); ++b) {
        std::fill_n(to, columns_of_row.groups * kColumnGroup, nullptr);
        for (int64_t h = 0; h < p_.heads; ++h) {
          const int64_t column = r * p_.heads + h;
          to[column - first_group * kColumnGroup] = scores + column * score_stride_ + (own.count() + b) * kKeyBlock;
        }
        const bool last = b + 1 == blocks_of(entry_count(row));
        bad[most + b] = key_block(entry_records(row, b), last ? first_records(after, 0) : entry_records(row, b + 1),
                                  columns_of_row, values + (most + b) * block_words_);
      }
      finish(row, 0, p_.heads,
             {.scores = scores + r * p_.heads * score_stride_,
              .window_values = values + (own.first - seen.first) * block_words_,
              .entry_values = values + most * block_words_,
              .window_bad = bad + own.first - seen.first,
              .entry_bad = bad + most},
             first_records(after, 1));
    }
  }

  // ---- few rows ----

  void run_shared() const {
    const int64_t groups = (p_.heads + kColumnGroup - 1) / kColumnGroup;
    const int64_t most_window = blocks_of(p_.window) + 1;
    const int64_t most = most_window + entry_blocks_;
    const int64_t query_words = groups * packed_query_words(p_.head_dim);
    uint16_t* queries = scratch<struct MatrixSharedQueriesTag, uint16_t>(p_.rows * query_words);
    for (int64_t row = 0; row < p_.rows; ++row) std::copy_n(pack(row, 1), query_words, queries + row * query_words);
    float* scores = scratch<struct MatrixSharedScoresTag>(p_.rows * p_.heads * score_stride_);
    uint16_t* values = scratch<struct MatrixSharedValuesTag, uint16_t>(p_.rows * most * block_words_);
    uint32_t* bad = scratch<struct MatrixSharedBadTag, uint32_t>(p_.rows * most);

    device_.pool->parallel_for(p_.rows * most, 1, [&](int64_t begin, int64_t end) {
      float** to = scratch<struct MatrixScoresOfColumnsTag, float*>(groups * kColumnGroup);
      std::fill_n(to, groups * kColumnGroup, nullptr);
      kMatrixAttention.begin();
      for (int64_t item = begin; item < end; ++item) {
        const int64_t row = item / most;
        const int64_t b = item % most;
        const Blocks own = blocks(window(row));
        const bool of_window = b < most_window;
        if (b >= (of_window ? own.count() : most_window + blocks_of(entry_count(row)))) continue;
        const int64_t slot = of_window ? b : own.count() + b - most_window;
        for (int64_t h = 0; h < p_.heads; ++h) {
          to[h] = scores + (row * p_.heads + h) * score_stride_ + slot * kKeyBlock;
        }
        const Columns columns{queries + row * query_words, to, groups};
        uint16_t* to_values = values + item * block_words_;
        const Records records =
            of_window ? window_records(row, own.first + b, window(row)) : entry_records(row, b - most_window);
        bad[item] = key_block(records, {}, columns, to_values);
      }
      kMatrixAttention.end();
    });
    for_each_head_group(score_stride_, [&](int64_t row, int64_t head, int64_t heads) {
      const int64_t window_blocks = row * most;
      const int64_t entry_blocks = window_blocks + most_window;
      kMatrixAttention.begin();
      finish(row, head, heads,
             {.scores = scores + (row * p_.heads + head) * score_stride_,
              .window_values = values + window_blocks * block_words_,
              .entry_values = values + entry_blocks * block_words_,
              .window_bad = bad + window_blocks,
              .entry_bad = bad + entry_blocks},
             {});
      kMatrixAttention.end();
    });
  }

  // ---- both ----

  // Rotates the queries of some rows and packs them; valid until the thread's next call.
  const uint16_t* pack(int64_t first_row, int64_t rows) const {
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      rotate(query(row, 0), p_.heads, angle_of(row), false);
    }
    const int64_t columns = rows * p_.heads;
    const int64_t groups = (columns + kColumnGroup - 1) / kColumnGroup;
    auto* packed = scratch<struct MatrixQueriesTag, uint16_t>(groups * packed_query_words(p_.head_dim));
    kMatrixAttention.pack_queries(query(first_row, 0), columns, p_.head_dim, packed);
    return packed;
  }

  // The records of a block, null where there is none.
  struct Records {
    const uint8_t* at[kKeyBlock] = {};
    KeyFormat format = KeyFormat::q8;
  };

  // Block b of the window keys that rows of this row's sequence see.
  Records window_records(int64_t row, int64_t b, const Window& seen) const {
    Records records;
    const int64_t start = b * kKeyBlock;
    for (int64_t t = std::max(seen.first, start); t < std::min(seen.end, start + kKeyBlock); ++t) {
      records.at[t - start] = position_record(row, t);
    }
    return records;
  }

  // Block b of a row's entries.
  Records entry_records(int64_t row, int64_t b) const {
    Records records{.format = KeyFormat::q4nv};
    const int64_t start = b * kKeyBlock;
    for (int64_t i = start; i < std::min(entry_count(row), start + kKeyBlock); ++i) {
      records.at[i - start] = entry_record(row, i);
    }
    return records;
  }

  // Window block b of a tile's keys, counted from its first one; none for no tile.
  Records first_records(const Tile* tile, int64_t b) const {
    if (tile == nullptr) return {};
    const Window all{window(tile->first_row).first, window(tile->first_row + tile->rows - 1).end};
    return window_records(tile->first_row, blocks(all).first + b, all);
  }

  NextRecords next_of(const Records& records) const {
    return {.records = records.at,
            .bytes = records.format == KeyFormat::q8 ? q8_bytes(p_.head_dim) : q4nv_bytes(p_.head_dim)};
  }

  // `next` are taken after these.
  uint32_t key_block(const Records& records, const Records& next, const Columns& columns, uint16_t* values) const {
    auto* workspace = scratch<struct MatrixWorkspaceTag, uint16_t>(key_block_workspace_words(p_.head_dim));
    return kMatrixAttention.key_block({.records = records.at,
                                       .format = records.format,
                                       .next = next_of(next),
                                       .dim = p_.head_dim,
                                       .queries = columns.queries,
                                       .groups = columns.groups,
                                       .scores = columns.scores,
                                       .values = values,
                                       .workspace = workspace});
  }

  // The blocks of a row and the scores of some of its heads.
  struct Scored {
    float* scores;  // [heads, score_stride_]: window blocks, entry blocks
    const uint16_t* window_values;
    const uint16_t* entry_values;
    const uint32_t* window_bad;
    const uint32_t* entry_bad;
  };

  void finish(int64_t row, int64_t first_head, int64_t heads, const Scored& scored, const Records& next) const {
    const Window own = window(row);
    const Blocks seen = blocks(own);
    const int64_t entries = entry_count(row);
    float* out = output(row, first_head);
    if (own.count() + entries == 0) return std::fill_n(out, heads * p_.head_dim, 0.0F), void();
    const int64_t hidden_before = own.first - seen.first * kKeyBlock;
    const int64_t window_end = hidden_before + own.count();
    if (has_bad(scored, hidden_before, window_end, entries)) return by_vectors_.attend_rotated(row, first_head, heads);

    const int64_t entry_start = seen.count() * kKeyBlock;
    const int64_t count = seen.count() + blocks_of(entries);
    float* totals = scratch<struct MatrixTotalsTag>(heads);
    for (int64_t h = 0; h < heads; ++h) {
      float* scores = scored.scores + h * score_stride_;
      std::fill_n(scores, hidden_before, -INFINITY);
      std::fill(scores + window_end, scores + entry_start, -INFINITY);
      std::fill(scores + entry_start + entries, scores + count * kKeyBlock, -INFINITY);
      totals[h] = kernels_.softmax(scores, count * kKeyBlock, score_scale(), p_.sink[first_head + h]);
    }
    const uint16_t** values = scratch<struct MatrixBlocksTag, const uint16_t*>(count);
    for (int64_t b = 0; b < count; ++b) {
      values[b] = b < seen.count() ? scored.window_values + b * block_words_
                                   : scored.entry_values + (b - seen.count()) * block_words_;
    }
    auto* workspace = scratch<struct MatrixPartsTag, uint16_t>(weighted_sum_words(heads, count));
    kMatrixAttention.weighted_sum({.weights = scored.scores,
                                   .weight_stride = score_stride_,
                                   .totals = totals,
                                   .heads = heads,
                                   .blocks = values,
                                   .count = count,
                                   .dim = p_.head_dim,
                                   .next = next_of(next),
                                   .workspace = workspace,
                                   .out = out});
    rotate(out, heads, angle_of(row), true);
  }

  // Whether the row sees a key that the units may not have; window keys [begin, end) are its own.
  static bool has_bad(const Scored& scored, int64_t begin, int64_t end, int64_t entries) {
    for (int64_t i = begin; i < end; ++i) {
      if ((scored.window_bad[i / kKeyBlock] >> i % kKeyBlock & 1) != 0) return true;
    }
    return std::any_of(scored.entry_bad, scored.entry_bad + blocks_of(entries),
                       [](uint32_t bits) { return bits != 0; });
  }

  const Attention by_vectors_;  // for rows with keys that the units may not have
  const int64_t entry_blocks_;  // of a row, at most
  const int64_t score_stride_;  // of a head
  const int64_t block_words_;
};

}  // namespace

void attention(const Device& device, const AttentionParams& p) {
  if (p.rows == 0) return;
  if (device.simd == Simd::none) {
    return device.pool->parallel_for(p.rows, 1, [&](int64_t b, int64_t e) { attention_reference(p, b, e); });
  }
  if (has_matrix_units(device.simd) && p.activations == Activations::bf16) return MatrixAttention(device, p).run();
  Attention(device, p).run();
}

}  // namespace gannet::ops
