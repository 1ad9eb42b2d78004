#include <cmath>

#include "base/quantize.h"
#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/hyper_apply/op.h"
#include "ops/hyper_apply/sm90.h"
#include "ops/hyper_mix/sm90.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

enum class Kind { none, y, parts };

constexpr int64_t kTopK = 6;
constexpr float kEps = 1e-20F;

// Inputs on the host; rows of very different sizes.
struct Boundary {
  Kind kind;
  int64_t count, most, hidden;
  std::vector<float> streams, y, shared, parts, post, mix, pre, norm;

  Boundary(Kind kind_of_output, int64_t rows, int64_t most_rows, int64_t hidden_size, uint32_t seed)
      : kind(kind_of_output), count(rows), most(most_rows), hidden(hidden_size) {
    Random random(seed);
    streams = random.activations(most * 4 * hidden);
    for (int64_t r = 0; r < most; ++r) {
      const float size = std::ldexp(1.0F, static_cast<int>(r % 5) * 6 - 12);
      for (int64_t i = 0; i < 4 * hidden; ++i) streams[r * 4 * hidden + i] *= size;
    }
    y = random.activations(most * hidden);
    shared = random.normals(most * hidden);
    parts = random.normals(most * kTopK * hidden);
    for (const uint16_t code : random.norm_weights(hidden)) norm.push_back(bf16_to_float(code));
    for (int64_t i = 0; i < most * 4; ++i) post.push_back(random.uniform(0, 2));
    for (int64_t i = 0; i < most * 16; ++i) mix.push_back(random.uniform(0, 1));
    for (int64_t i = 0; i < most * 4; ++i) pre.push_back(random.uniform(0, 1));
  }
};

struct Result {
  std::vector<__nv_bfloat16> streams, x, operand;
  bool guards = false;
};

// The whole op on the device, `launches` times, each from the same streams.
class DeviceRun {
 public:
  explicit DeviceRun(const Boundary& b)
      : b_(b),
        count_(std::vector{static_cast<int32_t>(b.count)}),
        streams_(to_bf16(b.streams)),
        y_(to_bf16(b.y)),
        shared_(b.shared),
        parts_(b.parts),
        post_(b.post),
        mix_(b.mix),
        pre_(b.pre),
        norm_(to_bf16(b.norm)),
        x_(b.most * b.hidden),
        operand_(b.most * b.hidden) {}

  HyperApplyParams params() const {
    HyperApplyParams p{.streams = streams_.get(),
                       .count = count_.get(),
                       .most = b_.most,
                       .hidden = b_.hidden,
                       .top_k = kTopK,
                       .post = post_.get(),
                       .mix = mix_.get(),
                       .pre = pre_.get(),
                       .norm = norm_.get(),
                       .norm_eps = kEps,
                       .x = x_.get(),
                       .operand = operand_.get()};
    if (b_.kind == Kind::y) p.y = y_.get();
    if (b_.kind == Kind::parts) {
      p.shared = shared_.get();
      p.parts = parts_.get();
    }
    return p;
  }
  Result run(const HyperApplyParams& p) {
    streams_.set(to_bf16(b_.streams));
    x_.poison();
    operand_.poison();
    hyper_apply(nullptr, p);
    return {streams_.host(), x_.host(), operand_.host(),
            streams_.guard_intact() && x_.guard_intact() && operand_.guard_intact()};
  }
  Result run() { return run(params()); }

 private:
  const Boundary& b_;
  Array<int32_t> count_;
  Array<__nv_bfloat16> streams_, y_;
  Array<float> shared_, parts_, post_, mix_, pre_;
  Array<__nv_bfloat16> norm_, x_, operand_;
};

struct Expected {
  std::vector<float> streams, x, operand;
};

Expected by_reference(const Boundary& b) {
  Expected e{b.streams, std::vector<float>(b.count * b.hidden), std::vector<float>(b.count * b.hidden)};
  std::vector<float> y = b.y;
  if (b.kind == Kind::parts) {
    for (int64_t r = 0; r < b.count; ++r) {
      for (int64_t i = 0; i < b.hidden; ++i) {
        float sum = b.shared[r * b.hidden + i];
        for (int64_t k = 0; k < kTopK; ++k) sum += b.parts[(r * kTopK + k) * b.hidden + i];
        y[r * b.hidden + i] = round_to_bf16(sum);
      }
    }
  }
  const auto norm = ops::test::bf16_codes(b.norm);
  ops::hyper_apply_reference({.streams = e.streams.data(),
                              .rows = b.count,
                              .streams_per_row = 4,
                              .hidden = b.hidden,
                              .y = b.kind == Kind::none ? nullptr : y.data(),
                              .post = b.post.data(),
                              .mix = b.mix.data(),
                              .pre = b.pre.data(),
                              .norm = norm.data(),
                              .norm_eps = kEps,
                              .x = e.x.data(),
                              .operand = e.operand.data()},
                             0, b.count);
  return e;
}

// Equal to `expected` up to one step of its format in a few places: the sum of squares has another order.
void expect_rounded(const std::vector<float>& actual, const std::vector<float>& expected, double relative) {
  int64_t different = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    different += actual[i] != expected[i];
    ASSERT_NEAR(actual[i], expected[i], relative * std::fabs(expected[i]) + 1e-5) << i;
  }
  EXPECT_LE(different, 2 + static_cast<int64_t>(expected.size()) / 200);
}

void expect_matches(const Boundary& b, const Result& result) {
  const Expected e = by_reference(b);
  const int64_t n = b.count * b.hidden;
  EXPECT_TRUE(same_bits(result.streams, to_bf16(e.streams)));
  auto x = to_float(result.x), operand = to_float(result.operand);
  for (int64_t i = n; i < b.most * b.hidden; ++i) ASSERT_TRUE(std::isnan(x[i]) && std::isnan(operand[i])) << i;
  x.resize(n);
  operand.resize(n);
  auto quantized = e.x;
  q8_round(quantized);
  expect_rounded(x, quantized, 0x1p-3);
  expect_rounded(operand, e.operand, 0x1p-7);
  EXPECT_TRUE(result.guards);
}

struct Size {
  int64_t count, most, hidden;
};

TEST(CudaHyperApply, MatchesTheReference) {
  for (const Kind kind : {Kind::none, Kind::y, Kind::parts}) {
    for (const auto& [count, most, hidden] : {Size{0, 3, 256},
                                              {1, 1, 32},
                                              {3, 5, 384},
                                              {2, 2, 5120},
                                              {16, 16, 256},
                                              {13, 20, 1024},
                                              {33, 50, 512},
                                              {40, 64, 1056},
                                              {3, 100, 5120},
                                              {70, 80, 96},
                                              {2, 70, 8192},
                                              {2, 2, 8192}}) {
      SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(most) + " rows, hidden " + std::to_string(hidden));
      const Boundary b(kind, count, most, hidden, 1);
      expect_matches(b, DeviceRun(b).run());
    }
  }
}

TEST(CudaHyperApply, WithoutANormOnlyStreamsChange) {
  for (const int64_t most : {2, 70}) {
    const Boundary b(Kind::y, 2, most, 384, 2);
    DeviceRun device(b);
    auto params = device.params();
    params.norm = nullptr;
    params.pre = nullptr;
    const Result result = device.run(params);
    EXPECT_TRUE(same_bits(result.streams, to_bf16(by_reference(b).streams)));
    for (const float x : to_float(result.x)) ASSERT_TRUE(std::isnan(x));
  }
}

TEST(CudaHyperApply, ZerosStayZeros) {
  Boundary b(Kind::y, 1, 1, 256, 3);
  std::fill(b.streams.begin(), b.streams.end(), 0.0F);
  std::fill(b.y.begin(), b.y.end(), 0.0F);
  const Result result = DeviceRun(b).run();
  for (const float x : to_float(result.x)) EXPECT_EQ(x, 0.0F);
  for (const float x : to_float(result.operand)) EXPECT_EQ(x, 0.0F);
}

TEST(CudaHyperApply, RepeatsBitForBit) {
  for (const int64_t most : {3, 30, 130}) {
    const Boundary b(Kind::parts, std::min<int64_t>(most, 40), most, 1280, 4);
    DeviceRun device(b);
    const Result first = device.run();
    for (int i = 0; i < 30; ++i) {
      const Result again = device.run();
      ASSERT_TRUE(same_bits(again.streams, first.streams) && same_bits(again.x, first.x) &&
                  same_bits(again.operand, first.operand));
    }
  }
}

TEST(CudaHyperApply, RowsDoNotDependOnTheirNeighbours) {
  for (const int64_t most : {5, 24, 60, 70}) {
    const int64_t hidden = 1280, r = 4;
    const Boundary all(Kind::y, most, most, hidden, 5);
    Boundary alone(Kind::y, 1, most, hidden, 6);
    std::copy_n(all.streams.begin() + r * 4 * hidden, 4 * hidden, alone.streams.begin());
    std::copy_n(all.y.begin() + r * hidden, hidden, alone.y.begin());
    std::copy_n(all.post.begin() + r * 4, 4, alone.post.begin());
    std::copy_n(all.mix.begin() + r * 16, 16, alone.mix.begin());
    std::copy_n(all.pre.begin() + r * 4, 4, alone.pre.begin());
    alone.norm = all.norm;
    const Result together = DeviceRun(all).run(), single = DeviceRun(alone).run();
    const auto expect_row = [&](const auto& many, const auto& one, int64_t width) {
      EXPECT_EQ(std::memcmp(&many[r * width], &one[0], width * sizeof(one[0])), 0);
    };
    expect_row(together.streams, single.streams, 4 * hidden);
    expect_row(together.x, single.x, hidden);
    expect_row(together.operand, single.operand, hidden);
  }
}

// Three sites as the forward pass runs them: coefficients on a side stream, beside the sublayer.
class Sites {
 public:
  explicit Sites(int64_t rows)
      : rows_(rows),
        count_(std::vector{static_cast<int32_t>(rows)}),
        streams_(rows * 4 * kHidden),
        x_(rows * kHidden),
        operand_(rows * kHidden),
        y_(rows * kHidden),
        norm_(kHidden),
        fn_(24 * 4 * kHidden),
        base_(24),
        scale_(3),
        partial_(hyper_mix_scratch(rows)),
        coefficients_(rows * 24) {
    fill(norm_.get(), norm_.size(), 1);
    fill(fn_.get(), fn_.size(), 2);
    fill(base_.get(), base_.size(), 3);
    fill(scale_.get(), scale_.size(), 4);
  }
  void restart() {
    fill(streams_.get(), streams_.size(), 5);
    fill(x_.get(), x_.size(), 6);
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
  }
  void run(cudaStream_t main, cudaStream_t side, cudaEvent_t fork, cudaEvent_t join) {
    for (int site = 0; site < 3; ++site) {
      GANNET_CUDA_CHECK(cudaEventRecord(fork, main));
      GANNET_CUDA_CHECK(cudaStreamWaitEvent(side, fork));
      mix(side);
      GANNET_CUDA_CHECK(cudaEventRecord(join, side));
      halve(main, x_.get(), y_.get(), x_.size());
      GANNET_CUDA_CHECK(cudaStreamWaitEvent(main, join));
      apply(main);
    }
  }
  void run_one_by_one() {
    for (int site = 0; site < 3; ++site) {
      mix(nullptr);
      GANNET_CUDA_CHECK(cudaDeviceSynchronize());
      halve(nullptr, x_.get(), y_.get(), x_.size());
      GANNET_CUDA_CHECK(cudaDeviceSynchronize());
      apply(nullptr);
      GANNET_CUDA_CHECK(cudaDeviceSynchronize());
    }
  }
  std::vector<__nv_bfloat16> streams() const { return streams_.host(); }

 private:
  void mix(cudaStream_t stream) {
    hyper_mix(stream, {.streams = streams_.get(),
                       .count = count_.get(),
                       .most = rows_,
                       .hidden = kHidden,
                       .fn = fn_.get(),
                       .base = base_.get(),
                       .scale = scale_.get(),
                       .sinkhorn_iterations = 20,
                       .norm_eps = kEps,
                       .eps = 1e-6F,
                       .partial = partial_.get(),
                       .pre = coefficients_.get(),
                       .post = coefficients_.get() + rows_ * 4,
                       .mix = coefficients_.get() + rows_ * 8});
  }
  void apply(cudaStream_t stream) {
    hyper_apply(stream, {.streams = streams_.get(),
                         .count = count_.get(),
                         .most = rows_,
                         .hidden = kHidden,
                         .y = y_.get(),
                         .post = coefficients_.get() + rows_ * 4,
                         .mix = coefficients_.get() + rows_ * 8,
                         .pre = coefficients_.get(),
                         .norm = norm_.get(),
                         .norm_eps = kEps,
                         .x = x_.get(),
                         .operand = operand_.get()});
  }

  static constexpr int64_t kHidden = 1280;
  int64_t rows_;
  Array<int32_t> count_;
  Array<__nv_bfloat16> streams_, x_, operand_, y_, norm_;
  Array<float> fn_, base_, scale_, partial_, coefficients_;
};

TEST(CudaHyperApply, RunsBesideHyperMixInAGraph) {
  cudaStream_t main = nullptr, side = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  GANNET_CUDA_CHECK(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
  GANNET_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  GANNET_CUDA_CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  GANNET_CUDA_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  for (const int64_t rows : {1, 40, 300}) {
    Sites sites(rows);
    sites.restart();
    sites.run_one_by_one();
    const auto expected = sites.streams();
    sites.restart();
    sites.run(main, side, fork, join);
    EXPECT_TRUE(same_bits(sites.streams(), expected)) << rows;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    GANNET_CUDA_CHECK(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    sites.run(main, side, fork, join);
    GANNET_CUDA_CHECK(cudaStreamEndCapture(main, &graph));
    GANNET_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; ++i) {
      sites.restart();
      GANNET_CUDA_CHECK(cudaGraphLaunch(exec, main));
      ASSERT_TRUE(same_bits(sites.streams(), expected)) << rows;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  cudaEventDestroy(join);
  cudaEventDestroy(fork);
  cudaStreamDestroy(side);
  cudaStreamDestroy(main);
}

TEST(Benchmark, HyperApply) {
  constexpr int64_t kHidden = 5120;
  constexpr int kSets = 20;
  for (const Kind kind : {Kind::y, Kind::parts, Kind::none}) {
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 1024, 8192}) {
      if (kind == Kind::parts && rows > 1024) continue;
      const int sets = static_cast<int>(std::clamp<int64_t>(4096 / rows, 2, kSets));
      const int64_t n = rows * kHidden;
      const Array<__nv_bfloat16> streams(sets * n * 4), y(sets * n), norm(kHidden), x(sets * n), operand(sets * n);
      const Array<float> shared(kind == Kind::parts ? sets * n : 4), parts(kind == Kind::parts ? sets * n * kTopK : 4),
          coefficients(rows * 16);
      const Array<int32_t> count(std::vector{static_cast<int32_t>(rows)});
      fill(streams.get(), streams.size(), 1);
      fill(y.get(), y.size(), 2);
      fill(norm.get(), norm.size(), 3);
      fill(shared.get(), shared.size(), 4);
      fill(parts.get(), parts.size(), 5);
      fill(coefficients.get(), coefficients.size(), 6);
      const double time = time_launch([&](cudaStream_t stream, int i) {
        const int64_t set = i % sets;
        HyperApplyParams p{.streams = streams.get() + set * n * 4,
                           .count = count.get(),
                           .most = rows,
                           .hidden = kHidden,
                           .top_k = kTopK,
                           .post = coefficients.get(),
                           .mix = coefficients.get(),
                           .pre = coefficients.get(),
                           .norm = norm.get(),
                           .norm_eps = kEps,
                           .x = x.get() + set * n,
                           .operand = operand.get() + set * n};
        if (kind == Kind::y) p.y = y.get() + set * n;
        if (kind == Kind::parts) {
          p.shared = shared.get() + set * n;
          p.parts = parts.get() + set * n * kTopK;
        }
        hyper_apply(stream, p);
      });
      const double channel_bytes = kind == Kind::y ? 22 : kind == Kind::parts ? 20 + 4 * (kTopK + 1) : 12;
      const char* name = kind == Kind::y ? "y" : kind == Kind::parts ? "parts" : "no output";
      report(("hyper_apply, " + std::string(name) + ", rows: " + std::to_string(rows)).c_str(), time,
             channel_bytes * static_cast<double>(n), 0);
    }
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test
