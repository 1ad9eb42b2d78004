#include <cpuid.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "ops/linear/kernels.h"
#include "ops/linear/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

constexpr int64_t kBlock = 32;

void check(const LinearParams& params) {
  const WeightMatrix& w = params.weight;
  const bool scaled = w.format == WeightFormat::fp8 || w.format == WeightFormat::mxfp4;
  GANNET_CHECK(params.rows >= 0 && params.outputs >= 0 && w.cols >= 0);
  GANNET_CHECK(params.first_output >= 0 && params.first_output + params.outputs <= w.rows);
  GANNET_CHECK(params.x_stride >= w.cols || params.rows <= 1);
  GANNET_CHECK(params.y_stride >= params.outputs || params.rows <= 1);
  GANNET_CHECK(w.format != WeightFormat::mxfp4 || w.cols % kBlock == 0);
  GANNET_CHECK(!params.quantize_input || w.cols % kBlock == 0);
  GANNET_CHECK(!scaled || w.scale != nullptr);
}

void check(std::span<const LinearParams> products) {
  for (const LinearParams& p : products) {
    check(p);
    const LinearParams& first = products.front();
    GANNET_CHECK(p.x == first.x && p.x_stride == first.x_stride && p.rows == first.rows);
    GANNET_CHECK(p.quantize_input == first.quantize_input);
    GANNET_CHECK(p.weight.format == first.weight.format && p.weight.cols == first.weight.cols);
  }
}

int64_t all_outputs(std::span<const LinearParams> products) {
  int64_t outputs = 0;
  for (const LinearParams& p : products) outputs += p.outputs;
  return outputs;
}

// Outputs [begin, end) of all products, one behind the other, as ranges of one product each; y, rows and inputs are the
// caller's to set.
template <class Body>
void for_each_range(std::span<const LinearParams> products, int64_t begin, int64_t end, const Body& body) {
  for (const LinearParams& p : products) {
    const int64_t first = std::max<int64_t>(begin, 0);
    const int64_t count = std::min(end, p.outputs) - first;
    if (count > 0) {
      body(LinearRange{.weight = p.weight,
                       .first = p.first_output + first,
                       .count = count,
                       .y = p.y + first,
                       .y_stride = p.y_stride,
                       .round = p.activations == Activations::bf16});
    }
    begin -= p.outputs;
    end -= p.outputs;
  }
}

bool find_matrix_units() {
  constexpr uint32_t kLeaf = 7;
  constexpr uint32_t kBf16AndTiles = 1U << 22 | 1U << 24;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(kLeaf, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kBf16AndTiles) == kBf16AndTiles && matrix_units_granted();
}

int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
int64_t rounded_up(int64_t n, int64_t to) {
  return ceil_div(n, to) * to;
}

// Waking a thread costs some microseconds, in which one reads some tens of kilobytes or multiplies twice as often.
int64_t threads_worth_waking(const WeightMatrix& weight, int64_t outputs, int64_t rows, int64_t threads) {
  constexpr int64_t kWorthAThread = 64 * 1024;
  const int64_t work = outputs * weight.cols * (rows + 1) / 2;
  return std::clamp<int64_t>(work / kWorthAThread, 1, threads);
}

// ---- matrix units ----

bool units_take(const WeightMatrix& weight) {
  return weight.format != WeightFormat::f32 && weight.cols > 0 && weight.cols % kBlock == 0;
}

// On all threads of the pool, or on this one alone if there is none.
void pack(ThreadPool* pool, PackedRows& rows) {
  constexpr int64_t kWorthAThread = 8192;  // values, as in prepare_rows
  const int64_t parts = packing_parts(rows);
  auto* good = scratch<struct GoodPartsTag, uint8_t>(parts);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) good[part] = pack_part(rows, part) ? 1 : 0;
  };
  if (pool == nullptr) {
    body(0, parts);
  } else {
    pool->parallel_for(parts, std::max<int64_t>(1, kWorthAThread * parts / (rows.rows * rows.cols)), body);
  }
  find_good_rows(rows, good);
}

uint32_t* space_for_packed(int64_t rows, int64_t cols) {
  return scratch<struct LinearWorkspaceTag, uint32_t>(packed_words(rows, cols));
}

// kernels.multiply of processors with matrix units.
void multiply_by_matrix_units(const LinearRange& range) {
  const WeightMatrix& w = range.weight;
  if (!units_take(w)) return kLinearAvx512.multiply(range);
  const int64_t most = matrix_rows(w.cols);
  for (int64_t row = 0; row < range.rows; row += most) {
    PackedRows rows{.format = w.format,
                    .cols = w.cols,
                    .rows = std::min(most, range.rows - row),
                    .prepared = range.x + row,
                    .words = space_for_packed(range.rows, w.cols)};
    pack(nullptr, rows);
    for (const LinearRange* next = &range; next != nullptr; next = next->also) {
      LinearRange part = *next;
      part.y += row * part.y_stride;
      multiply_packed(part, rows);
    }
  }
}

const LinearKernels& best_avx512() {
  static const LinearKernels kernels{
      .prepare = kLinearAvx512.prepare, .multiply = multiply_by_matrix_units, .dots = kLinearAvx512.dots};
  return has_matrix_units(Simd::avx512_bf16) ? kernels : kLinearAvx512;
}

constexpr int64_t kPanel = 2 * kMatrixGroup;  // outputs that the units take at a time for more than a few rows

// Rows that each thread is worth giving, where it takes all outputs for them; 0: threads share the outputs. Every
// thread decodes the weights that it takes once for matrix_rows of its rows; where outputs are shared, most of the
// packed rows come out of another core's cache.
int64_t rows_a_thread(const WeightMatrix& weight, int64_t outputs, int64_t rows, int64_t threads) {
  // For a column, in products of one weight with a group of rows, roughly:
  constexpr int64_t kDecoding = 3;   // of a weight
  constexpr int64_t kPacking = 15;   // of a row
  constexpr int64_t kFetching = 10;  // of a row that another core has packed
  const int64_t most = matrix_rows(weight.cols);
  const int64_t share = rounded_up(ceil_div(rows, threads), kMatrixGroup);
  if (share >= rows) return 0;
  const auto products = [&](int64_t count, int64_t of_rows) {
    return rounded_up(count, kPanel) * (kDecoding * ceil_div(of_rows, most) + ceil_div(of_rows, kMatrixGroup));
  };
  const int64_t by_rows = products(outputs, share) + kPacking * share;
  const int64_t by_outputs = products(ceil_div(outputs, threads), rows) + kPacking * share + kFetching * rows;
  return by_rows <= by_outputs ? share : 0;
}

// Of rows [begin, end): threads of the pool share the outputs, or this one takes all of them.
void multiply_rows(ThreadPool* pool, std::span<const LinearParams> products, int64_t begin, int64_t end,
                   int64_t outputs_a_thread) {
  const LinearParams& p = products.front();
  const int64_t most = matrix_rows(p.weight.cols);
  for (int64_t row = begin; row < end; row += most) {
    PackedRows rows{.format = p.weight.format,
                    .cols = p.weight.cols,
                    .rows = std::min(most, end - row),
                    .x = p.x + row * p.x_stride,
                    .x_stride = p.x_stride,
                    .quantize = p.quantize_input,
                    .words = space_for_packed(end - begin, p.weight.cols)};
    pack(pool, rows);
    const auto body = [&](int64_t first, int64_t last) {
      for_each_range(products, first, last, [&](LinearRange range) {
        range.y += row * range.y_stride;
        multiply_packed(range, rows);
      });
    };
    const int64_t outputs = all_outputs(products);
    if (pool == nullptr) {
      body(0, outputs);
    } else {
      pool->parallel_for(outputs, outputs_a_thread, body);
    }
  }
}

void linear_by_matrix_units(const Device& device, std::span<const LinearParams> products) {
  const WeightMatrix& w = products.front().weight;
  const int64_t rows = products.front().rows;
  const int64_t outputs = all_outputs(products);
  const int64_t threads = threads_worth_waking(w, outputs, rows, device.pool->size());
  const int64_t share = rows_a_thread(w, outputs, rows, threads);
  if (share > 0) {
    device.pool->parallel_for(
        rows, share, [&](int64_t begin, int64_t end) { multiply_rows(nullptr, products, begin, end, outputs); });
  } else {
    const int64_t panel = rows > kMatrixGroup / 2 ? kPanel : kMatrixGroup;
    multiply_rows(device.pool, products, 0, rows, rounded_up(ceil_div(outputs, threads), panel));
  }
}

}  // namespace

bool has_matrix_units(Simd simd) {
  static const bool found = find_matrix_units();
  return simd == Simd::avx512_bf16 && found;
}

float* space_for_prepared(int64_t floats) {
  return scratch<struct PreparedTag>(floats);
}
const float** space_for_prepared_rows(int64_t rows) {
  return scratch<struct PreparedRowsTag, const float*>(rows);
}

const LinearKernels* linear_kernels(Simd simd) {
  switch (simd) {
    case Simd::none:
      return nullptr;
    case Simd::avx2:
      return &kLinearAvx2;
    case Simd::avx512:
      return &kLinearAvx512;
    case Simd::avx512_bf16:
      return &best_avx512();
  }
  return nullptr;
}

int64_t weight_bytes(const WeightMatrix& weight, int64_t outputs) {
  const int64_t elements = outputs * weight.cols;
  switch (weight.format) {
    case WeightFormat::fp8:
      return elements + elements / (kBlock * kBlock);
    case WeightFormat::mxfp4:
      return elements / 2 + elements / kBlock;
    case WeightFormat::bf16:
      return elements * 2;
    case WeightFormat::f32:
      return elements * 4;
  }
  return 0;
}

void prepare_rows(const Device& device, const LinearKernels& kernels, const float* x, int64_t x_stride, int64_t rows,
                  int64_t cols, bool quantize, float* prepared) {
  const int64_t width = prepared_cols(cols);
  constexpr int64_t kWorthAThread = 8192;  // floats: two microseconds, as long as waking a thread takes
  const int64_t rows_per_thread = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(width, 1));
  device.pool->parallel_for(rows, rows_per_thread, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) kernels.prepare(x + r * x_stride, cols, quantize, prepared + r * width);
  });
}

void linear(const Device& device, const LinearParams& params) {
  linear(device, std::span(&params, 1));
}

void linear(const Device& device, std::span<const LinearParams> products) {
  check(products);
  const int64_t outputs = all_outputs(products);
  if (outputs == 0 || products.front().rows == 0) return;
  const LinearParams& p = products.front();
  const LinearKernels* kernels = linear_kernels(device.simd);
  if (kernels == nullptr) {
    for (const LinearParams& product : products) linear_reference(product);
    return;
  }
  if (has_matrix_units(device.simd) && units_take(p.weight)) return linear_by_matrix_units(device, products);

  const int64_t width = prepared_cols(p.weight.cols);
  float* prepared = scratch<struct LinearInputTag>(p.rows * width);
  prepare_rows(device, *kernels, p.x, p.x_stride, p.rows, p.weight.cols, p.quantize_input, prepared);
  const float** x = scratch<struct LinearRowsTag, const float*>(p.rows);
  for (int64_t r = 0; r < p.rows; ++r) x[r] = prepared + r * width;

  const int64_t threads = threads_worth_waking(p.weight, outputs, p.rows, device.pool->size());
  const int64_t grain = std::max<int64_t>(8, rounded_up(ceil_div(outputs, threads), 8));
  device.pool->parallel_for(outputs, grain, [&](int64_t begin, int64_t end) {
    for_each_range(products, begin, end, [&](LinearRange range) {
      range.x = x;
      range.rows = p.rows;
      kernels->multiply(range);
    });
  });
}

}  // namespace gannet::ops
