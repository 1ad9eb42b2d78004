#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// Decoding of one packed cache record (layouts: base/quantize.h) of `channels` channels, a multiple of 32, to floats in
// the order of linear's kernels: in every group of 32 channels the even ones, then the odd ones, which is how codes
// fall out of their bytes. The values are those of q8_unpack, q4nv_unpack and q4mx_unpack, bit for bit.
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
