#include "base/quantize.h"
#include "ops/cuda/testing.h"
#include "ops/kv_insert/op.h"
#include "ops/kv_insert/sm90.h"
#include "ops/rope/op.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

constexpr int64_t kDim = 512;
constexpr int64_t kIndexDim = 128;
constexpr float kEps = 1e-20F;
using Bytes = std::vector<std::byte>;

std::vector<float> frequencies_c() {
  return rope_frequencies({.theta = 160000, .dim = 64, .factor = 16, .original_length = 65536});
}

std::vector<__nv_bfloat16> norm_on_device(const std::vector<uint16_t>& codes) {
  std::vector<float> values;
  for (const uint16_t code : codes) values.push_back(bf16_to_float(code));
  return to_bf16(values);
}

// Sums and sines differ in their last bits, so that a value on the edge between two codes may take the other one: at
// most one byte in 1000 of those written may differ.
void expect_nearly_same_bytes(std::span<const std::byte> actual, std::span<const std::byte> expected) {
  constexpr auto kUntouched = std::byte{0xff};
  ASSERT_EQ(actual.size(), expected.size());
  int64_t different = 0, written = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    written += expected[i] != kUntouched ? 1 : 0;
    different += actual[i] != expected[i] ? 1 : 0;
  }
  EXPECT_LE(different, written / 1000 + 1);
}

// Consecutive rows of sequences on the device.
struct DeviceRows {
  std::vector<Sequence> sequences;
  std::vector<int32_t> row_positions, row_sequences;
  Array<int32_t> count, positions, sequence_of, sequence_count;
  Array<Sequence> device_sequences;

  DeviceRows(const std::vector<Sequence>& all, int64_t most)
      : sequences(all), count(1), positions(most), sequence_of(most), sequence_count(1), device_sequences(all) {
    for (size_t s = 0; s < all.size(); ++s) {
      for (int32_t i = 0; i < all[s].rows; ++i) {
        row_positions.push_back(all[s].start + i);
        row_sequences.push_back(static_cast<int32_t>(s));
      }
    }
    positions.set(row_positions);
    sequence_of.set(row_sequences);
    count.set(std::vector{static_cast<int32_t>(row_positions.size())});
    sequence_count.set(std::vector{static_cast<int32_t>(all.size())});
  }
  int64_t real() const { return std::ssize(row_positions); }
  Rows rows() const {
    return {.count = count.get(),
            .most = positions.size(),
            .positions = positions.get(),
            .sequence_of = sequence_of.get(),
            .sequences = device_sequences.get(),
            .sequence_count = sequence_count.get(),
            .most_sequences = device_sequences.size()};
  }
};

// --- insert_window

std::vector<float> normed_latent(std::vector<float> x, const std::vector<uint16_t>& norm) {
  float squares = 0;
  for (const float v : x) squares += v * v;
  const float factor = 1 / std::sqrt(squares / static_cast<float>(x.size()) + kEps);
  for (size_t c = 0; c < x.size(); ++c) x[c] = bf16_to_float(norm[c]) * (x[c] * factor);
  q8_round(x);
  return x;
}

// NaN where nothing may be written. At most `most` values may be on the other side of a tie.
void expect_nearly_same_latents(const std::vector<float>& values, const std::vector<float>& expected, int64_t most) {
  int64_t different = 0;
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << "written: " << i;
      continue;
    }
    ASSERT_NEAR(values[i], expected[i], std::fabs(expected[i]) / 7 + 1e-3F) << i;
    different += values[i] != expected[i] ? 1 : 0;
  }
  EXPECT_LE(different, most);
}

void check_insert_window(int64_t latent_size, int64_t rows, int64_t most, float scale) {
  SCOPED_TRACE("latent " + std::to_string(latent_size) + ", rows " + std::to_string(rows));
  Random random(static_cast<uint32_t>(latent_size + rows));
  const int64_t stride = latent_size + kDim;
  const auto projected = random.normals(most * stride, scale);
  const auto latent_norm = random.norm_weights(latent_size), kv_norm = random.norm_weights(kDim);
  const auto frequencies = rope_frequencies({.theta = 10000, .dim = 64});
  const DeviceRows set({{.slot = 0, .rows = static_cast<int32_t>(rows), .start = 1000000}}, most);
  const Array<float> device_projected(projected), device_frequencies(frequencies);
  const Array<__nv_bfloat16> device_latent_norm(norm_on_device(latent_norm)), device_kv_norm(norm_on_device(kv_norm));
  const int64_t latent_stride = latent_size + 32;
  Array<__nv_bfloat16> latent(most * latent_stride);
  Array<std::byte> records(most * q8_bytes(kDim));
  const auto run = [&] {
    latent.poison();
    records.poison();
    insert_window(nullptr, {.projected = device_projected.get(),
                            .stride = stride,
                            .rows = set.rows(),
                            .latent_size = latent_size,
                            .latent_norm = device_latent_norm.get(),
                            .kv_norm = device_kv_norm.get(),
                            .norm_eps = kEps,
                            .frequencies = device_frequencies.get(),
                            .latent = latent.get(),
                            .latent_stride = latent_stride,
                            .records = records.get()});
  };
  run();
  const auto latents = latent.host();
  const auto written = records.host();
  EXPECT_TRUE(latent.guard_intact() && records.guard_intact());

  Bytes expected(most * q8_bytes(kDim), std::byte{0xff});
  std::vector<float> expected_latents(most * latent_stride, NAN), kv;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = projected.data() + r * stride;
    kv.insert(kv.end(), row + latent_size, row + stride);
    const std::vector<float> x = normed_latent({row, row + latent_size}, latent_norm);
    std::copy(x.begin(), x.end(), expected_latents.begin() + r * latent_stride);
  }
  insert_window_reference({.kv = kv.data(),
                           .positions = set.row_positions.data(),
                           .rows = rows,
                           .head_dim = kDim,
                           .norm = kv_norm.data(),
                           .norm_eps = kEps,
                           .frequencies = &frequencies,
                           .records = expected.data()},
                          0, rows);
  expect_nearly_same_bytes(written, expected);
  expect_nearly_same_latents(to_float(latents), expected_latents, rows * latent_size / 2000 + 1);
  for (int i = 0; i < 5; ++i) {
    run();
    ASSERT_TRUE(same_bits(latent.host(), latents) && same_bits(records.host(), written));
  }
}

TEST(CudaInsertWindow, AsTheReference) {
  check_insert_window(1280, 5, 5, 1);
  check_insert_window(192, 33, 40, 30);
  check_insert_window(96, 1, 3, 1e-3F);
  check_insert_window(1280, 0, 4, 1);
}

TEST(CudaInsertWindow, ZerosStayZeros) {
  const DeviceRows set({{.rows = 1, .start = 7}}, 1);
  const Array<float> projected(std::vector<float>(96 + kDim));
  const Array<float> frequencies(frequencies_c());
  const Array<__nv_bfloat16> norm(norm_on_device(ops::test::bf16_ones(kDim)));
  const Array<__nv_bfloat16> latent(96);
  const Array<std::byte> records(q8_bytes(kDim));
  insert_window(nullptr, {.projected = projected.get(),
                          .stride = 96 + kDim,
                          .rows = set.rows(),
                          .latent_size = 96,
                          .latent_norm = norm.get(),
                          .kv_norm = norm.get(),
                          .norm_eps = kEps,
                          .frequencies = frequencies.get(),
                          .latent = latent.get(),
                          .latent_stride = 96,
                          .records = records.get()});
  for (const float v : to_float(latent.host())) EXPECT_EQ(v, 0);
  std::vector<float> values(kDim);
  const auto record = records.host();
  const auto* codes = reinterpret_cast<const uint8_t*>(record.data());
  q8_unpack(codes, codes + kDim, values);
  for (const float v : values) EXPECT_EQ(v, 0);
}

// --- keep_windows

TEST(CudaKeepWindows, LastRowsOfEachSequenceGoIntoTheRingsOfAllLayers) {
  constexpr int64_t kWindow = 16, kLayers = 3, kAllLayers = 5, kSlots = 4, kFirst = 1;
  const int64_t bytes = q8_bytes(kDim);
  const DeviceRows set({{.slot = 2, .first_row = 0, .rows = 1, .start = 100},
                        {.slot = 0, .first_row = 1, .rows = 40, .start = 3},
                        {.slot = 1, .first_row = 41, .rows = 0, .start = 9},
                        {.slot = 3, .first_row = 41, .rows = 16, .start = 0}},
                       70);
  const int64_t layer_stride = 80 * bytes, slot_stride = kAllLayers * kWindow * bytes;
  Bytes records(kLayers * layer_stride);
  Random random(1);
  for (std::byte& b : records) b = static_cast<std::byte>(random.integer(0, 250));
  const Array<std::byte> device_records(records);
  const Array<std::byte> rings(kSlots * slot_stride);
  keep_windows(nullptr, {.records = device_records.get(),
                         .layer_stride = layer_stride,
                         .first_layer = kFirst,
                         .layers = kLayers,
                         .rows = set.rows(),
                         .window = kWindow,
                         .rings = rings.get(),
                         .slot_stride = slot_stride});
  Bytes expected(kSlots * slot_stride, std::byte{0xff});
  for (const Sequence& sequence : set.sequences) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t i = std::max<int64_t>(0, sequence.rows - kWindow); i < sequence.rows; ++i) {
        const int64_t slot = (sequence.start + i) % kWindow;
        std::copy_n(records.begin() + layer * layer_stride + (sequence.first_row + i) * bytes, bytes,
                    expected.begin() + sequence.slot * slot_stride + ((kFirst + layer) * kWindow + slot) * bytes);
      }
    }
  }
  EXPECT_EQ(rings.host(), expected);
  EXPECT_TRUE(rings.guard_intact());
}

// --- insert_entries and insert_keys

constexpr int64_t kSlots = 5;
constexpr int64_t kBlockRecords = 8;
constexpr int64_t kTableStride = 20;

// Caches and pending pairs of all slots: on the device, and as the reference sees them.
struct Cache {
  int64_t ratio;
  std::vector<int32_t> tables;
  Bytes entries, keys;
  std::vector<float> pending;
  Array<int32_t> device_tables;
  Array<std::byte> device_entries, device_keys;
  Array<float> device_pending;

  static int64_t stride(int64_t bytes) { return kBlockRecords * bytes + 32; }
  static constexpr int64_t kPendingStride = 2 * kDim + 64;

  explicit Cache(int64_t pooling)
      : ratio(pooling),
        entries(kSlots * kTableStride * stride(q4nv_bytes(kDim)), std::byte{0xff}),
        keys(kSlots * kTableStride * stride(q4mx_bytes(kIndexDim)), std::byte{0xff}),
        pending(kSlots * kPendingStride),
        device_tables(kSlots * kTableStride),
        device_entries(std::ssize(entries)),
        device_keys(std::ssize(keys)),
        device_pending(kSlots * kPendingStride) {
    for (int32_t i = 0; i < kSlots * kTableStride; ++i) tables.push_back(i * 37 % (kSlots * kTableStride));
    device_tables.set(tables);
    pending = Random(99).normals(kSlots * kPendingStride);
    device_pending.set(pending);
  }
  PagedRecords paged(Bytes& pool, int64_t bytes, int64_t slot) {
    return {.base = pool.data(),
            .block_table = tables.data() + slot * kTableStride,
            .block_stride = stride(bytes),
            .block_records = kBlockRecords,
            .record_bytes = bytes};
  }
  Records records(const Array<std::byte>& pool, int64_t bytes) const {
    return {.base = pool.get(),
            .block_tables = device_tables.get(),
            .table_stride = kTableStride,
            .block_stride = stride(bytes),
            .block_records = kBlockRecords,
            .record_bytes = bytes};
  }
};

struct Layer {
  std::vector<uint16_t> norm, index_norm;
  std::vector<float> index_key, frequencies;
};

Layer random_layer() {
  Random random(5);
  Layer layer{random.norm_weights(kDim), random.norm_weights(kIndexDim), random.normals(kIndexDim * kDim, 0.05F),
              frequencies_c()};
  return layer;
}

// One pass on the device: returns what it wrote to `latent`.
std::vector<__nv_bfloat16> insert_on_device(const Layer& layer, const DeviceRows& set, const std::vector<float>& a,
                                            const std::vector<float>& gate, Cache& cache) {
  const int64_t most = set.rows().most, stride = cache.ratio * kDim;
  std::vector<float> projected(most * stride, NAN);
  for (int64_t r = 0; r < set.real(); ++r) {
    std::copy_n(a.begin() + r * kDim, kDim, projected.begin() + r * stride);
    if (cache.ratio == 2) std::copy_n(gate.begin() + r * kDim, kDim, projected.begin() + r * stride + kDim);
  }
  const Array<float> device_projected(projected), frequencies(layer.frequencies);
  const Array<__nv_bfloat16> norm(norm_on_device(layer.norm)), index_norm(norm_on_device(layer.index_norm));
  const Array<__nv_bfloat16> latent(most * kDim);
  insert_entries(nullptr, {.projected = device_projected.get(),
                           .stride = stride,
                           .ratio = cache.ratio,
                           .rows = set.rows(),
                           .norm = norm.get(),
                           .norm_eps = kEps,
                           .frequencies = frequencies.get(),
                           .pending = cache.device_pending.get(),
                           .pending_stride = Cache::kPendingStride,
                           .entries = cache.records(cache.device_entries, q4nv_bytes(kDim)),
                           .latent = latent.get()});
  const auto latents = latent.host();
  const auto values = to_float(latents);
  std::vector<float> products(most * kIndexDim, NAN);
  for (int64_t r = 0; r < set.real(); ++r) {
    for (int64_t i = 0; i < kIndexDim; ++i) {
      float sum = 0;
      for (int64_t c = 0; c < kDim; ++c) sum += layer.index_key[i * kDim + c] * values[r * kDim + c];
      products[r * kIndexDim + i] = sum;
    }
  }
  const Array<float> device_products(products);
  insert_keys(nullptr, {.projected = device_products.get(),
                        .ratio = cache.ratio,
                        .rows = set.rows(),
                        .norm = index_norm.get(),
                        .norm_eps = kEps,
                        .frequencies = frequencies.get(),
                        .keys = cache.records(cache.device_keys, q4mx_bytes(kIndexDim))});
  GANNET_CUDA_CHECK(cudaDeviceSynchronize());
  EXPECT_TRUE(latent.guard_intact());
  return latents;
}

// The same by the reference; rows before `cached` are left out, as the forward pass does.
void insert_by_reference(const Layer& layer, const DeviceRows& set, const std::vector<float>& a,
                         const std::vector<float>& gate, Cache& cache) {
  std::vector<InsertSequence> sequences;
  for (const Sequence& s : set.sequences) {
    const int64_t replayed = std::clamp(s.cached - s.start, 0, s.rows);
    sequences.push_back({.first_row = s.first_row + replayed,
                         .rows = s.rows - replayed,
                         .start = s.start + replayed,
                         .pending = cache.pending.data() + s.slot * Cache::kPendingStride,
                         .entries = cache.paged(cache.entries, q4nv_bytes(kDim), s.slot),
                         .keys = cache.paged(cache.keys, q4mx_bytes(kIndexDim), s.slot)});
  }
  insert_global_reference(
      {.a = a.data(),
       .gate = cache.ratio == 2 ? gate.data() : nullptr,
       .ratio = cache.ratio,
       .head_dim = kDim,
       .index_dim = kIndexDim,
       .sequences = sequences.data(),
       .sequence_count = std::ssize(sequences),
       .norm = layer.norm.data(),
       .index_key = {.format = WeightFormat::f32, .rows = kIndexDim, .cols = kDim, .data = layer.index_key.data()},
       .index_norm = layer.index_norm.data(),
       .norm_eps = kEps,
       .frequencies = &layer.frequencies});
}

// Passes whose sequences begin and end at odd and even positions; some rows are cached.
std::vector<std::vector<Sequence>> passes() {
  return {{{.slot = 3, .first_row = 0, .rows = 5, .start = 0},
           {.slot = 0, .first_row = 5, .rows = 1, .start = 0},
           {.slot = 1, .first_row = 6, .rows = 2, .start = 10, .cached = 10},
           {.slot = 4, .first_row = 8, .rows = 9, .start = 2, .cached = 6}},
          {{.slot = 0, .first_row = 0, .rows = 1, .start = 1},
           {.slot = 3, .first_row = 1, .rows = 4, .start = 5},
           {.slot = 1, .first_row = 5, .rows = 0, .start = 12},
           {.slot = 4, .first_row = 5, .rows = 3, .start = 9, .cached = 13}},
          {{.slot = 3, .first_row = 0, .rows = 2, .start = 9},
           {.slot = 4, .first_row = 2, .rows = 6, .start = 11},
           {.slot = 0, .first_row = 8, .rows = 1, .start = 2},
           {.slot = 1, .first_row = 9, .rows = 6, .start = 9, .cached = 11}}};
}

TEST(CudaInsertEntries, AsTheReferenceOverSeveralPasses) {
  const Layer layer = random_layer();
  for (const int64_t ratio : {1, 2}) {
    SCOPED_TRACE("ratio " + std::to_string(ratio));
    Random random(7);
    Cache cache(ratio);
    for (const auto& sequences : passes()) {
      const DeviceRows set(sequences, 24);
      const auto a = random.normals(set.real() * kDim, 3), gate = random.normals(set.real() * kDim, 2);
      const auto latents = to_float(insert_on_device(layer, set, a, gate, cache));
      insert_by_reference(layer, set, a, gate, cache);
      expect_nearly_same_bytes(cache.device_entries.host(), cache.entries);
      // A key's channel is a sum of 512 terms in another order.
      expect_nearly_same_bytes(cache.device_keys.host(), cache.keys);
      if (ratio == 2) {
        EXPECT_TRUE(same_bits(cache.device_pending.host(), cache.pending));
      }
      for (int64_t r = 0; r < std::ssize(latents) / kDim; ++r) {
        const bool real = r < set.real();
        const Sequence* s = real ? &sequences[set.row_sequences[r]] : nullptr;
        const int32_t position = real ? set.row_positions[r] : 0;
        const bool completes = real && position >= s->cached && (position + 1) % ratio == 0;
        EXPECT_EQ(std::isnan(latents[r * kDim]), !real) << r;
        if (real) {
          EXPECT_EQ(latents[r * kDim] != 0 && latents[r * kDim + kDim - 1] != 0, completes) << r;
        }
      }
    }
    EXPECT_TRUE(cache.device_entries.guard_intact() && cache.device_keys.guard_intact());
  }
}

TEST(CudaInsertEntries, RepeatsBitForBit) {
  const Layer layer = random_layer();
  Random random(8);
  const DeviceRows set(passes()[0], 17);
  const auto a = random.normals(set.real() * kDim, 3), gate = random.normals(set.real() * kDim, 2);
  Cache first(2);
  const auto latents = insert_on_device(layer, set, a, gate, first);
  for (int i = 0; i < 5; ++i) {
    Cache cache(2);
    ASSERT_TRUE(same_bits(insert_on_device(layer, set, a, gate, cache), latents));
    ASSERT_TRUE(same_bits(cache.device_entries.host(), first.device_entries.host()));
    ASSERT_TRUE(same_bits(cache.device_keys.host(), first.device_keys.host()));
  }
}

// --- speed

// Any rows of one sequence: the released model's shapes.
TEST(Benchmark, WindowInsert) {
  const Array<float> frequencies(frequencies_c());
  const Array<__nv_bfloat16> norm(norm_on_device(ops::test::bf16_ones(1280)));
  for (const int32_t rows : {1, 64, 256, 8192}) {
    const std::string name = ", " + std::to_string(rows) + " rows";
    const DeviceRows set({{.rows = rows, .start = 1000}}, rows);
    const Array<float> projected(std::vector<float>(int64_t{rows} * (1280 + kDim), 0.5F));
    const Array<__nv_bfloat16> latent(int64_t{rows} * 1280);
    const int64_t bytes = q8_bytes(kDim);
    const Array<std::byte> records(20 * rows * bytes), rings(40 * 128 * bytes);
    report(("insert_window" + name).c_str(), time_launch([&](cudaStream_t stream, int) {
             insert_window(stream, {.projected = projected.get(),
                                    .stride = 1280 + kDim,
                                    .rows = set.rows(),
                                    .latent_size = 1280,
                                    .latent_norm = norm.get(),
                                    .kv_norm = norm.get(),
                                    .norm_eps = kEps,
                                    .frequencies = frequencies.get(),
                                    .latent = latent.get(),
                                    .latent_stride = 1280,
                                    .records = records.get()});
           }),
           rows * (1792 * 4.0 + 1280 * 2 + 528), 0);
    report(("keep_windows of 20 layers" + name).c_str(), time_launch([&](cudaStream_t stream, int) {
             keep_windows(stream, {.records = records.get(),
                                   .layer_stride = rows * bytes,
                                   .first_layer = 0,
                                   .layers = 20,
                                   .rows = set.rows(),
                                   .window = 128,
                                   .rings = rings.get(),
                                   .slot_stride = 40 * 128 * bytes});
           }),
           std::min(rows, 128) * 20 * 528 * 2.0, 0);
  }
}

TEST(Benchmark, KvInsert) {
  const Array<float> frequencies(frequencies_c());
  const Array<__nv_bfloat16> norm(norm_on_device(ops::test::bf16_ones(kDim)));
  for (const int32_t rows : {1, 64, 256, 8192}) {
    const std::string name = ", " + std::to_string(rows) + " rows";
    const DeviceRows set({{.rows = rows, .start = 1000}}, rows);
    const Array<float> projected(std::vector<float>(int64_t{rows} * 1024, 0.5F));
    const Array<__nv_bfloat16> latent(int64_t{rows} * kDim);
    const Array<int32_t> table(std::vector<int32_t>(1));
    const Array<std::byte> entries((rows + 1000) * 288LL);
    const Array<float> pending(2 * kDim);
    const auto insert = [&](cudaStream_t stream, int64_t ratio) {
      insert_entries(stream, {.projected = projected.get(),
                              .stride = 1024,
                              .ratio = ratio,
                              .rows = set.rows(),
                              .norm = norm.get(),
                              .norm_eps = kEps,
                              .frequencies = frequencies.get(),
                              .pending = pending.get(),
                              .entries = {.base = entries.get(),
                                          .block_tables = table.get(),
                                          .block_records = rows + 1000,
                                          .record_bytes = 288},
                              .latent = latent.get()});
    };
    report(("insert_entries, ratio 2" + name).c_str(),
           time_launch([&](cudaStream_t stream, int) { insert(stream, 2); }), rows * (1024 * 4.0 + 1024 + 144), 0);
    report(("insert_keys, ratio 1" + name).c_str(), time_launch([&](cudaStream_t stream, int) {
             insert_keys(stream, {.projected = projected.get(),
                                  .ratio = 1,
                                  .rows = set.rows(),
                                  .norm = norm.get(),
                                  .norm_eps = kEps,
                                  .frequencies = frequencies.get(),
                                  .keys = {.base = entries.get(),
                                           .block_tables = table.get(),
                                           .block_records = rows + 1000,
                                           .record_bytes = 68}});
           }),
           rows * (128 * 4.0 + 68), 0);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test
