// Products of packed operands (packed.h) on the processor's tile units (Intel AMX), for one thread.
#include <type_traits>

#include "tessera/ops/kernels/unit_code.h"

#if defined(TESSERA_UNIT_CODE)
#include <immintrin.h>
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

namespace tessera::ops::kernels::tiles {
namespace {

// Each macro adds the products of a plane of the left panel (tiles 4, 5) and one of the right panel (tiles 6,
// 7) to the tiles 0 to 3. The first macro loads both planes, between products, so that the tile unit does not
// wait. The others load one plane and find the other in its tiles.
#define TESSERA_MULTIPLY(left, right)       \
  _tile_loadd(4, left, 64);                 \
  _tile_loadd(6, right, 64);                \
  _tile_dpbf16ps(0, 4, 6);                  \
  _tile_loadd(7, (right) + kTileBytes, 64); \
  _tile_dpbf16ps(1, 4, 7);                  \
  _tile_loadd(5, (left) + kTileBytes, 64);  \
  _tile_dpbf16ps(2, 5, 6);                  \
  _tile_dpbf16ps(3, 5, 7)
#define TESSERA_MULTIPLY_LEFT(left)        \
  _tile_loadd(4, left, 64);                \
  _tile_dpbf16ps(0, 4, 6);                 \
  _tile_dpbf16ps(1, 4, 7);                 \
  _tile_loadd(5, (left) + kTileBytes, 64); \
  _tile_dpbf16ps(2, 5, 6);                 \
  _tile_dpbf16ps(3, 5, 7)
#define TESSERA_MULTIPLY_RIGHT(right)       \
  _tile_loadd(6, right, 64);                \
  _tile_dpbf16ps(0, 4, 6);                  \
  _tile_dpbf16ps(2, 5, 6);                  \
  _tile_loadd(7, (right) + kTileBytes, 64); \
  _tile_dpbf16ps(1, 4, 7);                  \
  _tile_dpbf16ps(3, 5, 7)

// Fetches memory that will be written, a few cache lines at every step of a loop that has other things to do.
class Fetcher {
 public:
  // The memory is `rows` rows of `width` bytes, `stride` bytes apart.
  Fetcher(const void* from, int64_t rows, int64_t stride, int64_t width, int64_t steps)
      : row_(static_cast<const char*>(from)),
        rows_(rows),
        stride_(stride),
        width_(width),
        lines_per_step_((rows * ((width + 63) / 64) + steps - 1) / steps) {}
  void step() {
    for (int64_t i = 0; i < lines_per_step_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 1);
      at_ += 64;
      if (at_ >= width_) at_ = 0, row_ += stride_, --rows_;
    }
  }

 private:
  const char* row_;
  int64_t rows_, stride_, width_, lines_per_step_, at_ = 0;
};

struct NoFetcher {
  void step() {}
};

template <int64_t Planes, class F>
void multiply_panels(const char* left, const char* right, int64_t blocks, F result) {
  constexpr int64_t kBlock = Planes * kPlaneBytes;
  for (int64_t i = 0; i < blocks; ++i, left += kBlock, right += kBlock) {
    result.step();
    if constexpr (Planes == 1) {
      TESSERA_MULTIPLY(left, right);
    } else {
      // The products of the high, middle and low planes h, m, l come in the order hl, hm, mm, mh, lh, hh:
      // each shares a factor with the one before, and the large one comes last.
      TESSERA_MULTIPLY(left, right + 2 * kPlaneBytes);
      TESSERA_MULTIPLY_RIGHT(right + kPlaneBytes);
      TESSERA_MULTIPLY_LEFT(left + kPlaneBytes);
      TESSERA_MULTIPLY_RIGHT(right);
      TESSERA_MULTIPLY_LEFT(left + 2 * kPlaneBytes);
      TESSERA_MULTIPLY_LEFT(left);
    }
  }
}

// Zero, store and load the sums: tiles 0 to 3 are a square of 32 x 32 floats, whose rows lie `stride` apart
// in memory.
void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
void store_sums(float* to, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  float* below = to + kTileLines * stride;
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + kTileLines, bytes);
  _tile_stored(2, below, bytes);
  _tile_stored(3, below + kTileLines, bytes);
}
void load_sums(const float* from, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  const float* below = from + kTileLines * stride;
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + kTileLines, bytes);
  _tile_loadd(2, below, bytes);
  _tile_loadd(3, below + kTileLines, bytes);
}

// Computes C's block of `rows` x `columns`, up to a panel each, as the panels' product + beta C.
template <class Form, class Out>
void multiply_block(const char* left, const char* right, int64_t blocks, float beta, Out* c, int64_t ldc,
                    int64_t rows, int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Out));
  zero_sums();
  multiply_panels<kPlanes<Form>>(left, right, blocks, Fetcher(c, rows, ldc * kSize, columns * kSize, blocks));
  if constexpr (std::is_same_v<Out, float>) {
    if (rows == kPanelLines && columns == kPanelLines && beta == 0) {
      store_sums(c, ldc);
      return;
    }
  }
  alignas(64) float sums[kPanelLines][kPanelLines];
  store_sums(sums[0], kPanelLines);
  if constexpr (std::is_same_v<Out, Bf16>) {
    if (columns == kPanelLines && beta == 0) {
      for (int64_t row = 0; row < rows; ++row) {
        const __m512bh line =
            _mm512_cvtne2ps_pbh(_mm512_load_ps(sums[row] + kTileLines), _mm512_load_ps(sums[row]));
        _mm512_storeu_si512(c + row * ldc, reinterpret_cast<__m512i>(line));
      }
      return;
    }
  }
  avx512::add_sums(sums[0], kPanelLines, beta, c, ldc, rows, columns);
}

}  // namespace

// Configures eight tiles of 16 rows of 64 bytes each.
void configure() {
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Configuration kConfiguration;
  _tile_loadconfig(&kConfiguration);
}
void release() { _tile_release(); }

template <class Form, class Out>
void multiply(const Packed& left, const Packed& right, int64_t group, float beta, Out* c, int64_t ldc) {
  multiply_blocks<Form>(left, right, group, beta, c, ldc, multiply_block<Form, Out>);
}

template <class Form>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc) {
  adds ? load_sums(c, ldc) : zero_sums();
  multiply_panels<kPlanes<Form>>(left, right, blocks, NoFetcher());
  store_sums(c, ldc);
}

template void multiply<Split, float>(const Packed&, const Packed&, int64_t, float, float*, int64_t);
template void multiply<Bf16, float>(const Packed&, const Packed&, int64_t, float, float*, int64_t);
template void multiply<Bf16, Bf16>(const Packed&, const Packed&, int64_t, float, Bf16*, int64_t);
template void multiply_panel<Split>(const char*, const char*, int64_t, bool, float*, int64_t);
template void multiply_panel<Bf16>(const char*, const char*, int64_t, bool, float*, int64_t);

}  // namespace tessera::ops::kernels::tiles
#endif
