// Compiles the code for tile units over an emulation of their instructions, so that it is tested on
// processors without them. The linker takes these definitions instead of the library's.
#include "tessera/ops/kernels/packed.h"

#if defined(TESSERA_UNIT_CODE)
#include <cstring>

#include <immintrin.h>

namespace {

thread_local char emulated[8][16][64];

void load_tile(int tile, const void* from, int64_t stride) {
  for (int64_t row = 0; row < 16; ++row)
    memcpy(emulated[tile][row], static_cast<const char*>(from) + row * stride, 64);
}
void store_tile(int tile, void* to, int64_t stride) {
  for (int64_t row = 0; row < 16; ++row)
    memcpy(static_cast<char*>(to) + row * stride, emulated[tile][row], 64);
}
float float_at(int tile, int64_t row, int64_t word) {
  float x;
  memcpy(&x, &emulated[tile][row][4 * word], sizeof x);
  return x;
}
float bf16_at(int tile, int64_t row, int64_t half) {
  uint16_t bits;
  memcpy(&bits, &emulated[tile][row][2 * half], sizeof bits);
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}
// Adds the product of two tiles: sum[m][n] += left[m][2 k] right[k][2 n] + left[m][2 k + 1] right[k][2 n +
// 1].
void multiply_tiles(int sum, int left, int right) {
  for (int64_t m = 0; m < 16; ++m) {
    for (int64_t n = 0; n < 16; ++n) {
      float x = float_at(sum, m, n);
      for (int64_t i = 0; i < 32; ++i) x += bf16_at(left, m, i) * bf16_at(right, i / 2, 2 * n + i % 2);
      memcpy(&emulated[sum][m][4 * n], &x, sizeof x);
    }
  }
}

}  // namespace

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) static_cast<void>(from)
#define _tile_release() static_cast<void>(0)
#define _tile_zero(tile) memset(emulated[tile], 0, sizeof emulated[tile])
#define _tile_loadd(tile, from, stride) load_tile(tile, from, stride)
#define _tile_stored(tile, to, stride) store_tile(tile, to, stride)
#define _tile_dpbf16ps(sum, left, right) multiply_tiles(sum, left, right)

#include "tessera/ops/kernels/units_tiles.cpp"  // NOLINT(bugprone-suspicious-include)
#endif
