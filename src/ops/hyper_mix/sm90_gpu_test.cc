#include <cmath>

#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/hyper_mix/op.h"
#include "ops/hyper_mix/sm90.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

constexpr int64_t kDots = 24;
constexpr int64_t kIterations = 20;
constexpr float kNormEps = 1e-20F;
constexpr float kEps = 1e-6F;

struct Site {
  int64_t count, most, hidden;
  std::vector<float> streams, fn, base, scale;

  Site(int64_t rows, int64_t most_rows, int64_t hidden_size, uint32_t seed, float logit_size = 1)
      : count(rows), most(most_rows), hidden(hidden_size) {
    Random random(seed);
    streams = random.activations(most * 4 * hidden);
    for (int64_t r = 0; r < most; ++r) {
      const float size = std::ldexp(1.0F, static_cast<int>(r % 5) * 8 - 16);
      for (int64_t i = 0; i < 4 * hidden; ++i) streams[r * 4 * hidden + i] *= size;
    }
    fn = random.normals(kDots * 4 * hidden, 1 / std::sqrt(static_cast<float>(4 * hidden)));
    base = random.normals(kDots);
    scale = {random.uniform(0.5F, 2), random.uniform(0.5F, 2), logit_size};
  }
};

struct Coefficients {
  std::vector<float> pre, post, mix;
};

class DeviceRun {
 public:
  explicit DeviceRun(const Site& s)
      : s_(s),
        streams_(to_bf16(s.streams)),
        count_(std::vector{static_cast<int32_t>(s.count)}),
        fn_(s.fn),
        base_(s.base),
        scale_(s.scale),
        partial_(hyper_mix_scratch(s.most)),
        pre_(s.most * 4),
        post_(s.most * 4),
        mix_(s.most * 16) {}

  Coefficients run() {
    poison();
    launch(nullptr);
    return read();
  }
  void launch(cudaStream_t stream) const {
    hyper_mix(stream, {.streams = streams_.get(),
                       .count = count_.get(),
                       .most = s_.most,
                       .hidden = s_.hidden,
                       .fn = fn_.get(),
                       .base = base_.get(),
                       .scale = scale_.get(),
                       .sinkhorn_iterations = kIterations,
                       .norm_eps = kNormEps,
                       .eps = kEps,
                       .partial = partial_.get(),
                       .pre = pre_.get(),
                       .post = post_.get(),
                       .mix = mix_.get()});
  }
  void poison() {
    partial_.poison();
    pre_.poison();
    post_.poison();
    mix_.poison();
  }
  void set_count(int64_t count) { count_.set(std::vector{static_cast<int32_t>(count)}); }
  Coefficients read() const {
    Coefficients c{pre_.host(), post_.host(), mix_.host()};
    EXPECT_TRUE(partial_.guard_intact() && pre_.guard_intact() && post_.guard_intact() && mix_.guard_intact());
    return c;
  }

 private:
  const Site& s_;
  Array<__nv_bfloat16> streams_;
  Array<int32_t> count_;
  Array<float> fn_, base_, scale_, partial_, pre_, post_, mix_;
};

// Dots and RMS in double, the rest by the reference.
Coefficients expected(const Site& s) {
  Coefficients c{std::vector<float>(s.count * 4), std::vector<float>(s.count * 4), std::vector<float>(s.count * 16)};
  const ops::HyperMixParams params{.streams_per_row = 4,
                                   .base = s.base.data(),
                                   .scale = s.scale.data(),
                                   .sinkhorn_iterations = kIterations,
                                   .eps = kEps,
                                   .pre = c.pre.data(),
                                   .post = c.post.data(),
                                   .mix = c.mix.data()};
  const int64_t width = 4 * s.hidden;
  for (int64_t r = 0; r < s.count; ++r) {
    const float* u = &s.streams[r * width];
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(u[i]) * static_cast<double>(u[i]);
    std::vector<float> m;
    for (int64_t d = 0; d < kDots; ++d) {
      double dot = 0;
      for (int64_t i = 0; i < width; ++i) dot += static_cast<double>(s.fn[d * width + i]) * static_cast<double>(u[i]);
      m.push_back(static_cast<float>(dot / std::sqrt(squares / static_cast<double>(width) + kNormEps)));
    }
    ops::hyper_coefficients(params, m.data(), r);
  }
  return c;
}

double largest_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    largest = difference <= largest ? largest : difference;  // a NaN stays
  }
  return largest;
}

struct Size {
  int64_t count, most, hidden;
};

TEST(CudaHyperMix, MatchesTheFormulasInDouble) {
  for (const auto& [count, most, hidden] : {Size{0, 3, 256},
                                            {1, 1, 32},
                                            {1, 1, 5120},
                                            {3, 5, 384},
                                            {16, 16, 256},
                                            {13, 20, 1024},
                                            {33, 50, 512},
                                            {64, 64, 1056},
                                            {3, 100, 5120},
                                            {90, 200, 96},
                                            {300, 300, 256},
                                            {5, 1000, 384},
                                            {530, 600, 1312},
                                            {300, 9000, 512}}) {
    SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(most) + " rows, hidden " + std::to_string(hidden));
    const Site site(count, most, hidden, 1);
    const Coefficients actual = DeviceRun(site).run(), e = expected(site);
    const double pre = largest_difference(actual.pre, e.pre), post = largest_difference(actual.post, e.post),
                 mix = largest_difference(actual.mix, e.mix);
    EXPECT_LE(pre, 2e-6);
    EXPECT_LE(post, 4e-6);
    EXPECT_LE(mix, 2e-6);
    if (hidden == 5120) std::printf("largest errors: pre %.2g, post %.2g, mix %.2g\n", pre, post, mix);
    for (int64_t i = count * 4; i < most * 4; ++i) ASSERT_TRUE(std::isnan(actual.pre[i]) && std::isnan(actual.post[i]));
    for (int64_t i = count * 16; i < most * 16; ++i) ASSERT_TRUE(std::isnan(actual.mix[i]));
  }
}

TEST(CudaHyperMix, TakesLargeLogits) {
  const Site site(4, 4, 256, 2, 30);
  const Coefficients actual = DeviceRun(site).run(), e = expected(site);
  EXPECT_LE(largest_difference(actual.mix, e.mix), 5e-5);
}

TEST(CudaHyperMix, ZeroStreamsGiveTheBase) {
  Site site(1, 1, 256, 3);
  std::fill(site.streams.begin(), site.streams.end(), 0.0F);
  const Coefficients actual = DeviceRun(site).run(), e = expected(site);
  EXPECT_LE(largest_difference(actual.pre, e.pre), 1e-6);
  EXPECT_LE(largest_difference(actual.mix, e.mix), 1e-6);
}

TEST(CudaHyperMix, RepeatsBitForBit) {
  for (const int64_t most : {3, 64, 300, 600}) {
    const Site site(std::min<int64_t>(most, 70), most, 1280, 4);
    DeviceRun device(site);
    const Coefficients first = device.run();
    for (int i = 0; i < 30; ++i) {
      const Coefficients again = device.run();
      ASSERT_TRUE(same_bits(again.pre, first.pre) && same_bits(again.post, first.post) &&
                  same_bits(again.mix, first.mix));
    }
  }
}

TEST(CudaHyperMix, RowsDoNotDependOnTheirNeighbours) {
  for (const int64_t most : {5, 24, 60, 200, 300, 600}) {
    const int64_t hidden = 640;
    const Site all(most, most, hidden, 5);
    Site alone(1, most, hidden, 6);
    alone.fn = all.fn;
    alone.base = all.base;
    alone.scale = all.scale;
    const Coefficients together = DeviceRun(all).run();
    for (const int64_t r : {int64_t{1}, int64_t{4}, most - 1}) {
      std::copy_n(all.streams.begin() + r * 4 * hidden, 4 * hidden, alone.streams.begin());
      const Coefficients single = DeviceRun(alone).run();
      EXPECT_EQ(std::memcmp(&together.pre[r * 4], single.pre.data(), 16), 0);
      EXPECT_EQ(std::memcmp(&together.post[r * 4], single.post.data(), 16), 0);
      EXPECT_EQ(std::memcmp(&together.mix[r * 16], single.mix.data(), 64), 0);
    }
  }
}

// One captured launch, replayed with other counts.
TEST(CudaHyperMix, AGraphFollowsTheCount) {
  for (const int64_t most : {16, 64, 300, 600}) {
    const Site site(most, most, 640, 7);
    DeviceRun device(site);
    const Coefficients direct = device.run();
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    GANNET_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GANNET_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    device.launch(stream);
    GANNET_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    GANNET_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (const int64_t count : {most, int64_t{1}, int64_t{0}, most - 1}) {
      SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(most) + " rows");
      device.poison();
      device.set_count(count);
      GANNET_CUDA_CHECK(cudaDeviceSynchronize());
      for (int i = 0; i < 3; ++i) GANNET_CUDA_CHECK(cudaGraphLaunch(exec, stream));
      GANNET_CUDA_CHECK(cudaStreamSynchronize(stream));
      const Coefficients replayed = device.read();
      EXPECT_EQ(std::memcmp(replayed.pre.data(), direct.pre.data(), count * 16), 0);
      EXPECT_EQ(std::memcmp(replayed.mix.data(), direct.mix.data(), count * 64), 0);
      for (int64_t i = count * 4; i < most * 4; ++i) ASSERT_TRUE(std::isnan(replayed.pre[i]));
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

TEST(Benchmark, HyperMix) {
  constexpr int64_t kHidden = 5120, kWidth = 4 * kHidden;
  constexpr int kWeights = 128;  // so that they do not come out of the cache
  const Array<float> fn(kWeights * kDots * kWidth), base(kDots), scale(3);
  fill(fn.get(), fn.size(), 1);
  fill(base.get(), base.size(), 2);
  fill(scale.get(), scale.size(), 3);
  for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192}) {
    const int sets = static_cast<int>(std::clamp<int64_t>(16384 / rows, 2, 64));
    const int64_t n = rows * kWidth;
    const Array<__nv_bfloat16> streams(sets * n);
    const Array<float> partial(hyper_mix_scratch(rows)), pre(rows * 4), post(rows * 4), mix(rows * 16);
    const Array<int32_t> count(std::vector{static_cast<int32_t>(rows)});
    fill(streams.get(), streams.size(), 4);
    const double time = time_launch(
        [&](cudaStream_t stream, int i) {
          hyper_mix(stream, {.streams = streams.get() + i % sets * n,
                             .count = count.get(),
                             .most = rows,
                             .hidden = kHidden,
                             .fn = fn.get() + i % kWeights * kDots * kWidth,
                             .base = base.get(),
                             .scale = scale.get(),
                             .sinkhorn_iterations = kIterations,
                             .norm_eps = kNormEps,
                             .eps = kEps,
                             .partial = partial.get(),
                             .pre = pre.get(),
                             .post = post.get(),
                             .mix = mix.get()});
        },
        rows > 1024 ? 20 : kWeights);
    report(("hyper_mix, rows: " + std::to_string(rows)).c_str(), time, static_cast<double>(n * 2 + kDots * kWidth * 4),
           2.0 * kDots * static_cast<double>(n));
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test
