#pragma once

#include "ops/cuda/vectors.cuh"
#include "ops/hyper_apply/sm90.h"

// What the kernels for few and for many rows do with a vector of eight channels.
namespace gannet::ops::cuda::apply {

inline constexpr int kStreams = 4;
inline constexpr int kWords = kVectorChannels / 2;

struct Coefficients {
  float post[kStreams];
  float mix[kStreams * kStreams];
  float pre[kStreams];
};

__device__ inline void load_four(const float* from, float* to) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// sum + a b with both results rounded, as the reference rounds them: streams come out with the CPU's bits.
__device__ inline float add_product(float sum, float a, float b) {
  return __fadd_rn(sum, __fmul_rn(a, b));
}

// The new streams' words for two channels.
__device__ inline void mix_word(const Coefficients& c, uint32_t y, uint32_t words[kStreams]) {
  uint32_t mixed[kStreams];
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    float low = __fmul_rn(c.post[k], low_channel(y));
    float high = __fmul_rn(c.post[k], high_channel(y));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      low = add_product(low, c.mix[j * kStreams + k], low_channel(words[j]));
      high = add_product(high, c.mix[j * kStreams + k], high_channel(words[j]));
    }
    mixed[k] = pack_channels(low, high);
  }
#pragma unroll
  for (int k = 0; k < kStreams; ++k) words[k] = mixed[k];
}

// Mixes one vector of each stream in place, if there is an output, and collapses what comes out into z.
template <bool has_output>
__device__ void mix_and_collapse(const Coefficients& c, const uint4& y, uint4 state[kStreams],
                                 float z[kVectorChannels]) {
  uint32_t out[kStreams][kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    uint32_t words[kStreams];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) words[j] = word_of(state[j], w);
    if constexpr (has_output) mix_word(c, word_of(y, w), words);
    float low = 0, high = 0;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      out[j][w] = words[j];
      low = add_product(low, c.pre[j], low_channel(words[j]));
      high = add_product(high, c.pre[j], high_channel(words[j]));
    }
    z[2 * w] = low;
    z[2 * w + 1] = high;
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j) state[j] = make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]);
}

__device__ inline float squares_of(const float z[kVectorChannels]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectorChannels; ++i) sum = fmaf(z[i], z[i], sum);
  return sum;
}

__device__ inline float inverse_rms(float squares, const HyperApplyParams& p) {
  return 1.0F / sqrtf(squares / static_cast<float>(p.hidden) + p.norm_eps);
}

// The normed vector as Q8's values and rounded to bf16; the four lanes of a Q8 group call it together.
__device__ inline void normalise(const float z[kVectorChannels], float factor, const uint4& norm, uint4& x,
                                 uint4& operand) {
  float value[kVectorChannels];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const uint32_t weights = word_of(norm, w);
    value[2 * w] = low_channel(weights) * (z[2 * w] * factor);
    value[2 * w + 1] = high_channel(weights) * (z[2 * w + 1] * factor);
  }
  x = q8_round_vector(value);
  operand = make_uint4(pack_channels(value[0], value[1]), pack_channels(value[2], value[3]),
                       pack_channels(value[4], value[5]), pack_channels(value[6], value[7]));
}

// Many rows with a bf16 output and a norm; see sm90_many.cu.
bool takes_many(const HyperApplyParams& p);
void launch_many(cudaStream_t stream, const HyperApplyParams& p);

}  // namespace gannet::ops::cuda::apply
