#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// Encoding of packed cache records (layouts: base/quantize.h) of `channels` channels, a multiple of 32, in the usual
// order. The bytes are those of q8_pack, q4nv_pack and q4mx_pack.
using EncodeRecord = void (*)(const float* x, int64_t channels, uint8_t* record);

struct RecordEncoders {
  EncodeRecord q8;    // window keys
  EncodeRecord q4nv;  // global entries
  EncodeRecord q4mx;  // index keys
  // Index queries: x through Q4mx and back, as q4mx_round.
  void (*q4mx_round)(float* x, int64_t channels);
};

// The best variant up to `simd`.
const RecordEncoders& record_encoders(Simd simd);

extern const RecordEncoders kRecordEncodersReference;
extern const RecordEncoders kRecordEncodersAvx512;

}  // namespace gannet::ops
