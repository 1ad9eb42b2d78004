#include <algorithm>
#include <array>

#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

// To the kernels' order, in place.
void split(int64_t channels, float* out) {
  for (int64_t group = 0; group < channels; group += kMxGroup) {
    std::array<float, kMxGroup> in_order;
    std::copy_n(out + group, kMxGroup, in_order.begin());
    for (int64_t i = 0; i < kMxGroup; ++i) out[group + i % 2 * (kMxGroup / 2) + i / 2] = in_order[i];
  }
}

void q8(const uint8_t* record, int64_t channels, float* out) {
  q8_unpack(record, record + channels, {out, static_cast<size_t>(channels)});
  split(channels, out);
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  q4nv_unpack(record, record + channels / 2, {out, static_cast<size_t>(channels)});
  split(channels, out);
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  q4mx_unpack(record, record + channels / 2, {out, static_cast<size_t>(channels)});
  split(channels, out);
}

}  // namespace

const RecordDecoders kRecordDecodersReference = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx};

const RecordDecoders& record_decoders(Simd simd) {
  switch (simd) {
    case Simd::none:
      return kRecordDecodersReference;
    case Simd::avx2:
      return kRecordDecodersAvx2;
    case Simd::avx512:
    case Simd::avx512_bf16:
      return kRecordDecodersAvx512;
  }
  return kRecordDecodersReference;
}

}  // namespace gannet::ops
