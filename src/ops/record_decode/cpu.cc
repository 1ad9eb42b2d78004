#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

void q8(const uint8_t* record, int64_t channels, float* out) {
  q8_unpack(record, record + channels, {out, static_cast<size_t>(channels)});
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  q4nv_unpack(record, record + channels / 2, {out, static_cast<size_t>(channels)});
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  q4mx_unpack(record, record + channels / 2, {out, static_cast<size_t>(channels)});
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
