#pragma once

#include <cstdint>

#include "base/device.h"

// What the processor's arithmetic reaches when nothing is loaded or stored: the limit of products that memory does not
// bound.
namespace gannet::ops {

struct PeakOperations {
  double vectors = 0;       // fp32 operations a second of all threads together, two for a multiply-add
  double matrix_units = 0;  // those of bf16 products in matrix units; 0: none are used
};
PeakOperations peak_operations(const Device& device);

// Multiply-adds in registers, `rounds` times; returns the number of operations. Of the peak_*.cc files.
double multiply_avx2(int64_t rounds);
double multiply_avx512(int64_t rounds);
double multiply_matrix_units(int64_t rounds);

}  // namespace gannet::ops
