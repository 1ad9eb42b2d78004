#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/linear/inputs_amx.h"
#include "ops/linear/kernels.h"
#include "ops/linear/outputs_amx.h"
#include "ops/linear/weights_amx.h"
#include "ops/matrix_units.h"

// The matrix units (AMX): sixteen outputs by sixteen rows by 32 columns an instruction, bf16 in, fp32 sums. Every
// weight that is not f32 is exactly a bf16 value, and so are inputs behind Q8 or rounded to bf16, so nothing is lost.
//
// The units take subnormal numbers for zero. A row with a value that is no bf16, or is far from one in size, and an
// output with a weight or scale like that (or NaN) therefore go through the vectors' loops. Both are properties of the
// row or the output alone, and the units add the columns of each product in the same order whatever is beside it: a
// row's result does not depend on its batch.
//
// The units work on some weights while the next are decoded, in turns: they and the vectors wait for each other as
// little as possible, and weights are read in the order in which they lie.

namespace gannet::ops {
namespace {

constexpr int64_t kMostGroups = kMatrixRows / kGroup;  // of rows that share a decoded weight

// Sums in tiles 0 to 3, weights in 4 and 5, inputs in 6 and 7. Tiles of sums and of inputs have a column for each row;
// of several groups all are full.
TileShapes tile_shapes(int64_t rows) {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = kGroup;
    shapes.row_bytes[i] = i == 4 || i == 5 ? 64 : static_cast<uint16_t>(4 * rows);
  }
  return shapes;
}

template <WeightFormat format>
class MatrixMultiplier {
 public:
  MatrixMultiplier(const LinearRange& range, const PackedRows& rows) : range_(range), rows_(rows), inputs_(rows) {}

  void run() {
    const int64_t good = good_rows();
    if (good == 0) return replace_rows(0, rows_.rows);
    load_shapes(tile_shapes(inputs_.packed_rows(0)));
    const bool any_bad = rows_.rows > kGroup / 2 ? many_panels() : few_panels();
    release();
    if (any_bad) replace_bad_outputs();
    if (good == rows_.rows) return;
    for (int64_t r = 0; r < rows_.rows; ++r) {
      if (!rows_.is_good(r)) replace_rows(r, 1);
    }
  }

 private:
  using Decoder = LineDecoder<format>;
  using Registers = typename Decoder::Registers;
  static constexpr int64_t kLineSteps = line_steps(format);

  // Some lines of a panel of outputs, decoded together.
  struct Item {
    int64_t output = 0;  // of the range: the panel's first
    int64_t line = 0;

    void advance(int64_t outputs, int64_t lines, int64_t all_lines) {
      line += lines;
      if (line < all_lines) return;
      line = 0;
      output += outputs;
    }
  };

  int64_t good_rows() const {
    int64_t count = 0;
    for (const uint64_t word : rows_.good) count += std::popcount(word);
    return count;
  }

  GANNET_AMX static void load_shapes(const TileShapes& shapes) {
    __asm__ volatile("" : : "m"(shapes));  // g++ 12 does not see that the next instruction reads them
    _tile_loadconfig(&shapes);
  }
  GANNET_AMX static void release() { _tile_release(); }

  // How an item of `steps` steps and a panel of `outputs` outputs is decoded.
  template <int64_t outputs, int64_t steps>
  struct Source {
    static constexpr int64_t kLines = steps / kLineSteps;
    static constexpr int64_t kAhead = (12 + kLines - 1) / kLines * kLines;  // lines; whole items

    // An item's place, with its scales loaded. Beyond the last panel there is nothing to decode.
    Source(const MatrixMultiplier& of, Decoder& decoder, const Item& item)
        : weights(decoder),
          first(of.range_.first + item.output),
          count(of.range_.count - item.output),
          line(item.line) {
      if (count <= 0) return;
      lines = std::min(kLines, weights.lines() - line);
      usual = count >= outputs && lines == kLines && weights.whole(line + lines - 1);
      weights.template load_scales<kLines>(first, std::min(count, outputs), line);
      // Some lines later in the same row, or in the same place of a later panel.
      const int64_t ahead = line + kAhead;
      later = ahead / weights.lines() * outputs * weights.row_bytes() + (ahead % weights.lines() - line) * kLine;
    }

    // Decodes the o-th output's weights to a row.
    [[gnu::always_inline]] void decode(Registers& registers, int64_t o, Step* to, int64_t row) const {
      if (usual) [[likely]]
        return decode_usual(registers, o, to, row);
      decode_some(o, to, row);
    }
    [[gnu::always_inline]] void decode_usual(Registers& registers, int64_t o, Step* to, int64_t row) const {
      weights.template decode<kLines>(registers, first + o, o, line, later, to, row);
    }
    [[gnu::always_inline]] void decode_some(int64_t o, Step* to, int64_t row) const { decode_one(*this, o, to, row); }
    // Takes a copy, so that the loop's own need not be in memory.
    [[gnu::noinline]] static void decode_one(Source source, int64_t o, Step* to, int64_t row) {
      const int64_t lines = source.lines;
      if (o < source.count)
        return source.weights.decode_some(source.first + o, o, source.line, lines, source.later, to, row);
      for (int64_t s = 0; s < lines * kLineSteps; ++s) _mm512_store_si512(to[s][row], _mm512_setzero_si512());
    }

    Decoder& weights;
    int64_t first;  // output of the matrix
    int64_t count;  // outputs from there on
    int64_t line;
    int64_t lines = 0;
    int64_t later = 0;   // bytes from a line to what is fetched meanwhile
    bool usual = false;  // all outputs, and lines that are whole
  };

  // ---- few rows: sixteen outputs at a time; returns whether some weights were bad ----

  // Items of eight steps leave L1 room for the codes, more are better for MXFP4. Best are those that rows are multiples
  // of.
  bool few_panels() const {
    const int64_t steps = range_.weight.cols / kStep;
    if constexpr (format == WeightFormat::mxfp4) {
      if (steps % 16 == 0) return panels<16>();
      if (steps % 8 == 0) return panels<8>();
      if (steps % 12 == 0) return panels<12>();
    } else {
      if (steps % 8 == 0) return panels<8>();
      if (steps % 6 == 0) return panels<6>();
    }
    return panels<16>();
  }

  // `kFewSteps` are those of an item.
  template <int64_t kFewSteps>
  GANNET_AMX bool panels() const {
    using FewSource = Source<kGroup, kFewSteps>;
    alignas(64) Step steps[2][kFewSteps];
    Decoder weights(range_.weight);
    const int64_t items =
        (range_.count + kGroup - 1) / kGroup * ((weights.lines() + FewSource::kLines - 1) / FewSource::kLines);
    Item decoded, added;
    for (int64_t n = 0; n <= items; ++n) {
      const FewSource source(*this, weights, decoded);
      const int64_t added_steps = n > 0 ? std::min(FewSource::kLines, weights.lines() - added.line) * kLineSteps : 0;
      const uint32_t* inputs = inputs_.packed(0, added.line * kLineSteps);
      Registers registers = weights.load_registers();
      if (n > 0 && added.line == 0) _tile_zero(0);
      for (int64_t s = 0; s < kFewSteps; ++s, inputs += kPairs * inputs_.rows()) {
        for (int64_t o = s * kGroup / kFewSteps; o < (s + 1) * kGroup / kFewSteps; ++o)
          source.decode(registers, o, steps[n % 2], o);
        if (s >= added_steps) continue;
        _tile_loadd(4, steps[(n + 1) % 2][s], 64);
        _tile_loadd(6, inputs, 4 * inputs_.rows());
        _tile_dpbf16ps(0, 4, 6);
      }
      weights.learn(registers);
      decoded.advance(kGroup, FewSource::kLines, weights.lines());
      if (n == 0) continue;
      if (added.line + FewSource::kLines >= weights.lines()) store_group(added.output);
      added.advance(kGroup, FewSource::kLines, weights.lines());
    }
    return weights.any_bad();
  }

  GANNET_AMX void store_group(int64_t first) const {
    alignas(64) float sums[kGroup][kGroup];  // [outputs][rows]
    _tile_stored(0, sums, 64);
    outputs(0, first, std::min(kGroup, range_.count - first)).store(sums);
  }

  // ---- more rows: two groups of outputs and two of rows at a time, so that the units get four products out of four
  // tiles. Weights of some steps stay in L1 for all rows; the sums of more than two groups wait in memory while others
  // take their turn. ----

  static constexpr int64_t kOutputs = 2 * kGroup;
  template <int64_t kManySteps>
  using Weights = Step[2][kManySteps];                 // [groups of outputs]
  using Sums = float[kMostGroups][2][kGroup][kGroup];  // [groups of rows][groups of outputs][outputs][rows]

  // A turn multiplies a step of an item for two groups of rows and decodes some outputs of the next item.
  template <int64_t kManySteps>
  struct Turns {
    Source<kOutputs, kManySteps> source;
    Weights<kManySteps>& to;
    const Weights<kManySteps>& from;
    int64_t step;         // of the row: the item's first
    int64_t steps;        // of the item
    int64_t each;         // outputs to decode in a turn, rounded up
    int64_t decoded = 0;  // outputs
  };

  bool many_panels() const {
    const int64_t steps = range_.weight.cols / kStep;
    constexpr int64_t kOther = format == WeightFormat::mxfp4 ? 12 : 6;
    return steps % 8 != 0 && steps % kOther == 0 ? double_panels<kOther>() : double_panels<8>();
  }

  template <int64_t kManySteps>
  GANNET_AMX bool double_panels() const {
    constexpr int64_t kManyLines = kManySteps / kLineSteps;
    alignas(64) Weights<kManySteps> steps[2];
    alignas(64) Sums sums;
    Decoder weights(range_.weight);
    const int64_t items = (range_.count + kOutputs - 1) / kOutputs * ((weights.lines() + kManyLines - 1) / kManyLines);
    Item decoded, added;
    for (int64_t n = 0; n <= items; ++n) {
      const int64_t added_steps = std::min(kManyLines, weights.lines() - added.line) * kLineSteps;
      const int64_t turns_of_item = n > 0 ? row_pairs() * added_steps : added_steps;
      Turns<kManySteps> turns{.source = Source<kOutputs, kManySteps>(*this, weights, decoded),
                              .to = steps[n % 2],
                              .from = steps[(n + 1) % 2],
                              .step = added.line * kLineSteps,
                              .steps = added_steps,
                              .each = (kOutputs - 1) / turns_of_item + 1};
      decoded.advance(kOutputs, kManyLines, weights.lines());
      if (n == 0) {
        take_turns<0>(turns, 0);
        continue;
      }
      const bool ends = added.line + kManyLines >= weights.lines();
      if (ends) fetch_outputs(added.output);
      add_item(turns, n % 2 == 0, added.line == 0, ends, sums);
      if (ends) store_groups(added.output, sums);
      added.advance(kOutputs, kManyLines, weights.lines());
    }
    return weights.any_bad();
  }

  // Outputs of many rows are in many pages, and stores to memory would be waited for.
  void fetch_outputs(int64_t first) const {
    const int64_t last = std::min(first + kOutputs, range_.count) - 1;
    const float* y = range_.y;
    for (int64_t r = 0; r < inputs_.rows(); ++r, y += range_.y_stride) {
      fetch(y + first);
      fetch(y + last);
    }
  }

  int64_t row_pairs() const { return (inputs_.row_groups() + 1) / 2; }

  // Forth and back through the rows: an item begins with the two groups with which the one before ended, whose sums are
  // still in the tiles. Each exchange of sums costs as much as six products.
  template <int64_t kManySteps>
  [[gnu::always_inline]] GANNET_AMX void add_item(Turns<kManySteps>& turns, bool back, bool begins, bool ends,
                                                  Sums& sums) const {
    for (int64_t pair = 0; pair < row_pairs(); ++pair) {
      const int64_t group = 2 * (back ? row_pairs() - 1 - pair : pair);
      const bool two = group + 1 < inputs_.row_groups();
      if (begins) {
        zero_sums();
      } else if (pair > 0) {
        load_sums(sums + group, two);
      }
      if (two) {
        take_turns<2>(turns, group);
      } else {
        take_turns<1>(turns, group);
      }
      if (ends || pair + 1 < row_pairs()) store_sums(sums + group, two);
    }
  }

  template <int groups, int64_t kManySteps>
  [[gnu::always_inline]] GANNET_AMX void take_turns(Turns<kManySteps>& turns, int64_t group) const {
    if (turns.source.usual) [[likely]]
      return take_turns<groups, true>(turns, group);
    take_turns<groups, false>(turns, group);
  }

  // The loop has copies of all that it needs: what is in memory would be loaded again after each of the decoder's
  // stores.
  template <int groups, bool usual, int64_t kManySteps>
  [[gnu::always_inline]] GANNET_AMX void take_turns(Turns<kManySteps>& turns, int64_t group) const {
    const Turns<kManySteps> own = turns;
    Registers registers = own.source.weights.load_registers();
    const int64_t rows = inputs_.packed_rows(group);
    const uint32_t* first = inputs_.packed(group, own.step);
    const uint32_t* second = inputs_.packed(group + 1, own.step);
    uint64_t o = own.decoded;
    uint64_t due = o;
    for (int64_t s = 0; s < own.steps; ++s, first += kPairs * rows, second += kPairs * rows) {
      for (due += own.each; o < due && o < kOutputs; o += 2) {
        Step* const to = own.to[o / kGroup];
        const int64_t row = o % kGroup;
        if constexpr (usual) {
          own.source.decode_usual(registers, o, to, row);
          own.source.decode_usual(registers, o + 1, to, row + 1);
        } else {
          own.source.decode_some(o, to, row);
          own.source.decode_some(o + 1, to, row + 1);
        }
      }
      if constexpr (groups > 0) add_products<groups>(own.from[0][s], own.from[1][s], first, second, 4 * rows);
    }
    turns.decoded = o;
    turns.source.weights.learn(registers);
  }

  template <int groups>
  [[gnu::always_inline]] GANNET_AMX static void add_products(const void* first_weights, const void* second_weights,
                                                             const uint32_t* first, const uint32_t* second,
                                                             int64_t row_bytes) {
    // Inputs come from L2 and must not drive weights and sums out of L1.
    _tile_loadd(4, first_weights, 64);
    _tile_stream_loadd(6, first, row_bytes);
    _tile_loadd(5, second_weights, 64);
    if constexpr (groups > 1) _tile_stream_loadd(7, second, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (groups > 1) {
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  // ---- sums to outputs ----

  void store_groups(int64_t first, const Sums& sums) const {
    for (int64_t part = 0; part < 2 && first < range_.count; ++part, first += kGroup) {
      const int64_t count = std::min(kGroup, range_.count - first);
      for (int64_t g = 0; g < inputs_.row_groups(); ++g) outputs(g, first, count).store(sums[g][part]);
    }
  }

  OutputBlock outputs(int64_t group, int64_t first, int64_t count) const {
    return {.y = range_.y + group * kGroup * range_.y_stride + first,
            .stride = range_.y_stride,
            .rows = inputs_.group_rows(group),
            .mask = static_cast<__mmask16>((1U << count) - 1),
            .round = range_.round};
  }

  // ---- what the units cannot do ----

  void replace_bad_outputs() const {
    const Decoder weights(range_.weight);
    const float* const* x = nullptr;
    for (int64_t i = 0; i < range_.count; ++i) {
      if (weights.good(range_.first + i)) continue;
      if (x == nullptr) x = inputs_.prepared(0, rows_.rows);
      by_vectors(x, 0, rows_.rows, i, 1);
    }
  }

  void replace_rows(int64_t row, int64_t count) const {
    by_vectors(inputs_.prepared(row, count), row, count, 0, range_.count);
  }

  void by_vectors(const float* const* x, int64_t row, int64_t rows, int64_t output, int64_t count) const {
    LinearRange part = range_;
    part.first += output;
    part.count = count;
    part.x = x;
    part.rows = rows;
    part.y += row * range_.y_stride + output;
    part.also = nullptr;
    kLinearAvx512.multiply(part);
  }

  const LinearRange& range_;
  const PackedRows& rows_;
  const PackedInputs<format> inputs_;
};

// Calls a function with the format as a constant.
template <typename Call>
[[gnu::always_inline]] inline auto with_format(WeightFormat format, Call call) {
  if (format == WeightFormat::fp8) return call.template operator()<WeightFormat::fp8>();
  if (format == WeightFormat::mxfp4) return call.template operator()<WeightFormat::mxfp4>();
  return call.template operator()<WeightFormat::bf16>();
}

}  // namespace

int64_t packing_parts(const PackedRows& rows) {
  return with_format(rows.format, [&]<WeightFormat format>() {
    const PackedInputs<format> inputs(rows);
    return inputs.row_groups() * inputs.parts_of_group();
  });
}

bool pack_part(const PackedRows& rows, int64_t part) {
  return with_format(rows.format, [&]<WeightFormat format>() { return PackedInputs<format>(rows).pack_part(part); });
}

void find_good_rows(PackedRows& rows, const uint8_t* good_parts) {
  with_format(rows.format, [&]<WeightFormat format>() {
    const PackedInputs<format> inputs(rows);
    for (uint64_t& word : rows.good) word = 0;
    for (int64_t group = 0; group < inputs.row_groups(); ++group) {
      bool good = true;
      for (int64_t p = 0; p < inputs.parts_of_group(); ++p) good &= *good_parts++ != 0;
      for (int64_t r = group * kGroup; r < group * kGroup + inputs.group_rows(group); ++r) {
        if (good || inputs.good_row(r)) rows.good[r / 64] |= uint64_t{1} << r % 64;
      }
    }
  });
}

void multiply_packed(const LinearRange& range, const PackedRows& rows) {
  with_format(rows.format, [&]<WeightFormat format>() { MatrixMultiplier<format>(range, rows).run(); });
}

// Linux lets a process use the tiles only after it asked.
bool matrix_units_granted() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace gannet::ops
