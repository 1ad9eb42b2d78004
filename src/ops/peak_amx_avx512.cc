#include "ops/matrix_units.h"
#include "ops/peak.h"

namespace gannet::ops {

// Four tiles of sums, two of each operand, as products of large matrices have them.
GANNET_AMX double multiply_matrix_units(int64_t rounds) {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = 16;
    shapes.row_bytes[i] = 64;
  }
  __asm__ volatile("" : : "m"(shapes));  // g++ 12 does not see that the next instruction reads them
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(rounds);
}

}  // namespace gannet::ops
