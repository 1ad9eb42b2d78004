#include <gtest/gtest.h>

#include "ops/hyper_mix/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

// A site's inputs and outputs, owned.
struct Site {
  int64_t s, hidden, rows;
  std::vector<float> streams, fn, base, scale, pre, post, mix;

  Site(int64_t streams_per_row, int64_t hidden_size, int64_t row_count)
      : s(streams_per_row),
        hidden(hidden_size),
        rows(row_count),
        streams(rows * s * hidden),
        fn((2 + s) * s * s * hidden),
        base((2 + s) * s),
        scale(3),
        pre(poisoned(rows * s)),
        post(poisoned(rows * s)),
        mix(poisoned(rows * s * s)) {}

  HyperMixParams params() {
    return {.streams = streams.data(),
            .rows = rows,
            .streams_per_row = s,
            .hidden = hidden,
            .fn = fn.data(),
            .base = base.data(),
            .scale = scale.data(),
            .sinkhorn_iterations = 20,
            .norm_eps = 1e-20F,
            .eps = 1e-6F,
            .pre = pre.data(),
            .post = post.data(),
            .mix = mix.data()};
  }
  std::vector<float> outputs() const {
    std::vector<float> all = pre;
    all.insert(all.end(), post.begin(), post.end());
    all.insert(all.end(), mix.begin(), mix.end());
    return all;
  }
};

Site random_site(int64_t s, int64_t hidden, int64_t rows, uint32_t seed) {
  Random random(seed);
  Site site(s, hidden, rows);
  site.streams = random.activations(rows * s * hidden);
  site.fn = random.normals(std::ssize(site.fn), 1 / std::sqrt(static_cast<float>(s * hidden)));
  site.base = random.normals(std::ssize(site.base), 0.5F);
  site.scale = {0.7F, 0.4F, 1.3F};
  return site;
}

// The coefficients in double (spec: model 3.3, 2 to 4), in the order of Site::outputs for one row.
std::vector<double> coefficients_in_double(const Site& site, const std::vector<double>& m) {
  const int64_t s = site.s;
  const double eps = 1e-6;
  const auto logit = [&](int64_t i, int part) {
    return m[i] * static_cast<double>(site.scale[part]) + static_cast<double>(site.base[i]);
  };
  std::vector<double> result;
  for (int64_t j = 0; j < s; ++j) result.push_back(1 / (1 + std::exp(-logit(j, 0))) + eps);
  for (int64_t j = 0; j < s; ++j) result.push_back(2 / (1 + std::exp(-logit(s + j, 1))));
  std::vector<double> c(s * s);
  for (int64_t i = 0; i < s * s; ++i) c[i] = std::exp(logit(2 * s + i, 2));
  // Element n of line `line`, where lines are rows or columns.
  const auto at = [&](bool rows, int64_t line, int64_t n) -> double& {
    return rows ? c[line * s + n] : c[n * s + line];
  };
  const auto divide = [&](bool rows, double added) {
    for (int64_t line = 0; line < s; ++line) {
      double sum = added;
      for (int64_t n = 0; n < s; ++n) sum += at(rows, line, n);
      for (int64_t n = 0; n < s; ++n) at(rows, line, n) /= sum;
    }
  };
  divide(true, 0);
  for (double& value : c) value += eps;
  divide(false, eps);
  for (int i = 1; i < 20; ++i) {
    divide(true, eps);
    divide(false, eps);
  }
  result.insert(result.end(), c.begin(), c.end());
  return result;
}

// The 24 dots times the inverse RMS over all streams (spec: model 3.3, 1).
std::vector<double> dots_in_double(const Site& site, int64_t row) {
  const int64_t width = site.s * site.hidden;
  const float* u = site.streams.data() + row * width;
  double square = 0;
  for (int64_t i = 0; i < width; ++i) square += static_cast<double>(u[i]) * static_cast<double>(u[i]);
  const double factor = 1 / std::sqrt(square / static_cast<double>(width) + 1e-20);
  std::vector<double> m((2 + site.s) * site.s);
  for (int64_t k = 0; k < std::ssize(m); ++k) {
    for (int64_t i = 0; i < width; ++i) m[k] += static_cast<double>(site.fn[k * width + i]) * static_cast<double>(u[i]);
    m[k] *= factor;
  }
  return m;
}

TEST(HyperMix, CoefficientsOfTheSpecification) {  // model 7.5
  Site site(4, 1, 1);
  std::vector<float> m(24);
  for (int i = 0; i < 24; ++i) {
    m[i] = 0.1F * static_cast<float>(7 * i % 11 - 5);
    site.base[i] = 0.05F * static_cast<float>(5 * i % 7 - 3);
  }
  site.scale = {0.5F, 0.25F, 2};
  hyper_coefficients(site.params(), m.data(), 0);
  expect_close(site.pre, std::vector{.40131334, .54983500, .47502181, .53743085}, 0, 1e-7);
  expect_close(site.post, std::vector{1.08727737, .98750065, 1.02499479, .92514031}, 0, 2e-7);
  expect_close(site.mix,
               std::vector{.17018315, .42552487, .23410776, .17018322, .27377144, .07584960, .37660655, .27377141,
                           .15497876, .38750772, .30253369, .15497884, .40106565, .11111682, .08675100, .40106553},
               0, 2e-7);
}

void expect_doubly_stochastic(const Site& site) {
  for (int64_t r = 0; r < site.rows; ++r) {
    const float* c = site.mix.data() + r * site.s * site.s;
    for (int64_t j = 0; j < site.s; ++j) {
      double row = 0;
      double column = 0;
      for (int64_t k = 0; k < site.s; ++k) {
        row += static_cast<double>(c[j * site.s + k]);
        column += static_cast<double>(c[k * site.s + j]);
        EXPECT_GE(c[j * site.s + k], 0.0F);
      }
      EXPECT_NEAR(row, 1, 1e-3);
      EXPECT_NEAR(column, 1, 2e-6);  // columns are divided last; eps leaves them just below one
    }
  }
}

TEST(HyperMix, MatrixIsDoublyStochastic) {
  for (const int64_t s : {1, 2, 4, 8}) {
    Site site = random_site(s, 32, 5, 1);
    site.scale[2] = 0.3F;  // mild logits: twenty rounds are enough for the rows, too
    hyper_mix_reference(site.params(), 0, site.rows);
    expect_doubly_stochastic(site);
  }
}

TEST(HyperMix, RandomRowsMatchTheFormulasInDouble) {
  for (const int64_t s : {1, 2, 4, 8}) {
    for (const int64_t hidden : {1, 5, 32, 100}) {
      SCOPED_TRACE(std::to_string(s) + " streams of " + std::to_string(hidden));
      Site site = random_site(s, hidden, 3, 2);
      on_each_device([&](const Device& device) {
        Site run = site;
        hyper_mix(device, run.params());
        for (int64_t r = 0; r < run.rows; ++r) {
          const auto expected = coefficients_in_double(run, dots_in_double(run, r));
          const std::span all(expected);
          expect_close(std::span(run.pre).subspan(r * s, s), all.subspan(0, s), 3e-6, 0);
          expect_close(std::span(run.post).subspan(r * s, s), all.subspan(s, s), 3e-6, 0);
          expect_close(std::span(run.mix).subspan(r * s * s, s * s), all.subspan(2 * s), 1e-5, 1e-7);
        }
      });
    }
  }
}

TEST(HyperMix, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 7}) {
    const Site site = random_site(4, 64, rows, 3);
    expect_devices_agree(
        [&](const Device* device) {
          Site run = site;
          if (device != nullptr) {
            hyper_mix(*device, run.params());
          } else {
            hyper_mix_reference(run.params(), 0, rows);
          }
          return run.outputs();
        },
        1e-5, 1e-7);
  }
}

// A row's bits must not depend on its place or on its neighbours.
TEST(HyperMix, IdenticalRowsGetIdenticalBits) {
  Site site = random_site(4, 48, 9, 4);
  const int64_t width = site.s * site.hidden;
  for (const int64_t r : {3, 8}) std::copy_n(site.streams.begin(), width, site.streams.begin() + r * width);
  on_each_device([&](const Device& device) {
    Site run = site;
    hyper_mix(device, run.params());
    for (const int64_t r : {3, 8}) {
      expect_same_bits(std::span(run.pre).subspan(r * 4, 4), std::span(run.pre).first(4));
      expect_same_bits(std::span(run.post).subspan(r * 4, 4), std::span(run.post).first(4));
      expect_same_bits(std::span(run.mix).subspan(r * 16, 16), std::span(run.mix).first(16));
    }
  });
}

TEST(HyperMix, ScaleOfTheStreamsDoesNotMatter) {
  Site site = random_site(4, 32, 1, 5);
  Site scaled = site;
  for (float& value : scaled.streams) value *= 1024;
  hyper_mix_reference(site.params(), 0, 1);
  hyper_mix_reference(scaled.params(), 0, 1);
  expect_same_bits(scaled.outputs(), site.outputs());
}

TEST(HyperMix, ZeroStreamsLeaveTheBases) {
  Site site = random_site(4, 32, 1, 6);
  std::fill(site.streams.begin(), site.streams.end(), 0.0F);
  hyper_mix_reference(site.params(), 0, 1);
  expect_close(site.outputs(), coefficients_in_double(site, std::vector<double>(24)), 1e-5, 1e-7);
}

TEST(HyperMix, ExtremeLogitsStayFinite) {
  Random random(7);
  for (const float magnitude : {50.0F, 1e3F, 1e6F}) {
    Site site(4, 1, 1);
    site.scale = {1, 1, 1};
    const auto m = random.normals(24, magnitude);
    hyper_coefficients(site.params(), m.data(), 0);
    for (const float value : site.outputs()) EXPECT_TRUE(std::isfinite(value) && value >= 0) << magnitude;
  }
}

TEST(HyperMix, WritesItsOwnRowOnly) {
  Site site(2, 1, 3);
  const std::vector<float> m(8);
  hyper_coefficients(site.params(), m.data(), 1);
  for (const int i : {0, 1, 4, 5}) EXPECT_TRUE(std::isnan(site.pre[i]) && std::isnan(site.post[i]));
  for (const int i : {0, 1, 2, 3, 8, 9, 10, 11}) EXPECT_TRUE(std::isnan(site.mix[i]));
  EXPECT_FLOAT_EQ(site.pre[2], 0.5F + 1e-6F);
  EXPECT_FLOAT_EQ(site.post[3], 1);
  EXPECT_NEAR(site.mix[4], 0.5F, 1e-6F);
}

}  // namespace
}  // namespace gannet::ops::test
