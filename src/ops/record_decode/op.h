#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// Decoding of one packed cache record (layouts: base/quantize.h) of `channels` channels to floats: codes first, then
// scales. The values are those of q8_unpack, q4nv_unpack and q4mx_unpack, bit for bit.
using DecodeRecord = void (*)(const uint8_t* record, int64_t channels, float* out);

struct RecordDecoders {
  DecodeRecord q8;    // window keys
  DecodeRecord q4nv;  // global entries
  DecodeRecord q4mx;  // index keys
};

// The best variant up to `simd`.
const RecordDecoders& record_decoders(Simd simd);

extern const RecordDecoders kRecordDecodersReference;
extern const RecordDecoders kRecordDecodersAvx2;
extern const RecordDecoders kRecordDecodersAvx512;

}  // namespace gannet::ops
