#include <span>

#include "base/quantize.h"
#include "ops/record_encode/op.h"

namespace gannet::ops {
namespace {

std::span<const float> span_of(const float* x, int64_t channels) {
  return {x, static_cast<size_t>(channels)};
}

void q8(const float* x, int64_t channels, uint8_t* record) {
  q8_pack(span_of(x, channels), record, record + channels);
}

void q4nv(const float* x, int64_t channels, uint8_t* record) {
  q4nv_pack(span_of(x, channels), record, record + channels / 2);
}

void q4mx(const float* x, int64_t channels, uint8_t* record) {
  q4mx_pack(span_of(x, channels), record, record + channels / 2);
}

void round_through_q4mx(float* x, int64_t channels) {
  q4mx_round({x, static_cast<size_t>(channels)});
}

}  // namespace

const RecordEncoders kRecordEncodersReference = {
    .q8 = q8, .q4nv = q4nv, .q4mx = q4mx, .q4mx_round = round_through_q4mx};

const RecordEncoders& record_encoders(Simd simd) {
  return simd >= Simd::avx512 ? kRecordEncodersAvx512 : kRecordEncodersReference;
}

}  // namespace gannet::ops
