#include "tessera/ops/kernels/tile_multiply.h"

#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "tessera/core/error.h"
#include "tessera/ops/kernels/tile_rows.h"

#if defined(TESSERA_TILE_CODE)
#include <sys/syscall.h>

#include <cpuid.h>
#include <immintrin.h>
#include <unistd.h>

// Before the instructions are known to be there, the compiler may not use them.
namespace tessera::ops::kernels {
namespace {

bool bit(unsigned word, int i) { return ((word >> i) & 1u) != 0; }

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(1, 0, &a, &b, &c, &d) == 0 || !bit(c, 27)) return false;
  // The system keeps the registers: vectors (bits 1, 2), masks and long vectors (5 to 7), tiles (17, 18).
  unsigned kept = 0, kept_high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(kept_high) : "c"(0));
  constexpr unsigned kNeeded = 0x600e6;
  if ((kept & kNeeded) != kNeeded) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool has_avx512 = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31),
             has_tiles = bit(d, 22) && bit(d, 24);
  return has_avx512 && has_tiles && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && bit(a, 5);
}

bool ask_for_tiles() {
  const char* wanted = std::getenv("TESSERA_TILES");
  if (wanted != nullptr && std::string_view(wanted) == "0") return false;
  if (!has_instructions()) return false;
  // Tile data takes a permission of the kernel, for the whole process.
  constexpr int kArchRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_tiles() {
  static const bool answer = ask_for_tiles();
  return answer;
}

}  // namespace tessera::ops::kernels

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#endif

namespace tessera::ops::kernels {

#if defined(TESSERA_TILE_CODE)
namespace {

// Eight tiles of 16 rows of 64 bytes each.
void configure_tiles() {
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Configuration kConfiguration;
  _tile_loadconfig(&kConfiguration);
}
void release_tiles() { _tile_release(); }

// The products of a plane of the left panel (tiles 4, 5) with one of the right panel (6, 7), added to the
// tiles 0 to 3: with both planes loaded on the way, so that the tile unit does not wait, or one of them
// there.
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

// Fetches lines of memory to be written, a few at every step of a loop that has other things to do.
class Fetcher {
 public:
  // `rows` rows of `width` bytes, `stride` bytes apart.
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
      // The high, middle and low planes h, m, l in the order hl, hm, mm, mh, lh, hh: each product shares a
      // factor with the one before, and the large one comes last.
      TESSERA_MULTIPLY(left, right + 2 * kPlaneBytes);
      TESSERA_MULTIPLY_RIGHT(right + kPlaneBytes);
      TESSERA_MULTIPLY_LEFT(left + kPlaneBytes);
      TESSERA_MULTIPLY_RIGHT(right);
      TESSERA_MULTIPLY_LEFT(left + 2 * kPlaneBytes);
      TESSERA_MULTIPLY_LEFT(left);
    }
  }
}

// The sums, tiles 0 to 3, are a square of 32 x 32 floats; in memory, rows lie `stride` apart.
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

// C's block of `rows` x `columns`, up to a panel each, = the panels' product + beta C.
template <class T, class Out>
void multiply_block(const char* left, const char* right, int64_t blocks, float beta, Out* c, int64_t ldc,
                    int64_t rows, int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Out));
  zero_sums();
  multiply_panels<kPlanes<T>>(left, right, blocks, Fetcher(c, rows, ldc * kSize, columns * kSize, blocks));
  if constexpr (std::is_same_v<Out, float>) {
    if (rows == kPanelLines && columns == kPanelLines && beta == 0) {
      store_sums(c, ldc);
      return;
    }
  }
  alignas(64) float sums[kPanelLines][kPanelLines];
  store_sums(sums[0], kPanelLines);
  for (int64_t row = 0; row < rows; ++row) {
    if constexpr (std::is_same_v<Out, Bf16>) {
      if (columns == kPanelLines && beta == 0) {
        const __m512bh line =
            _mm512_cvtne2ps_pbh(_mm512_load_ps(sums[row] + kTileLines), _mm512_load_ps(sums[row]));
        _mm512_storeu_si512(c + row * ldc, reinterpret_cast<__m512i>(line));
        continue;
      }
    }
    add_sums(sums[row], beta, c + row * ldc, columns);
  }
}

}  // namespace

TileSession::TileSession() { configure_tiles(); }
TileSession::~TileSession() { release_tiles(); }

template <class T, class Out>
void multiply_packed(const Packed& left, const Packed& right, int64_t group, float beta, Out* c,
                     int64_t ldc) {
  const int64_t blocks = left.panel_bytes / kBlockBytes<T>;
  for (int64_t first = 0; first < right.panels(); first += group) {
    const int64_t end = std::min(first + group, right.panels());
    for (int64_t i = 0; i < left.panels(); ++i) {
      for (int64_t j = first; j < end; ++j) {
        multiply_block<T>(left.panel(i), right.panel(j), blocks, beta,
                          c + i * kPanelLines * ldc + j * kPanelLines, ldc, left.panel_lines(i),
                          right.panel_lines(j));
      }
    }
  }
}

template <class T>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc) {
  adds ? load_sums(c, ldc) : zero_sums();
  multiply_panels<kPlanes<T>>(left, right, blocks, NoFetcher());
  store_sums(c, ldc);
}

template <class Out>
void add_sums(const float* sum, float beta, Out* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kTileLines) {
    const __mmask16 mask = first_words(n - i);
    __m512 x = load_floats(sum + i, mask);
    if (beta != 0) x = _mm512_fmadd_ps(_mm512_set1_ps(beta), load_floats(to + i, mask), x);
    store_floats(to + i, mask, x);
  }
}

#else

bool has_tiles() { return false; }
TileSession::TileSession() { TESSERA_ASSERT(false, "no tile units"); }
TileSession::~TileSession() = default;
template <class T, class Out>
void multiply_packed(const Packed&, const Packed&, int64_t, float, Out*, int64_t) {}
template <class T>
void multiply_panel(const char*, const char*, int64_t, bool, float*, int64_t) {}
template <class Out>
void add_sums(const float*, float, Out*, int64_t) {}

#endif

template void add_sums<float>(const float*, float, float*, int64_t);
template void add_sums<Bf16>(const float*, float, Bf16*, int64_t);
template void multiply_panel<float>(const char*, const char*, int64_t, bool, float*, int64_t);
template void multiply_panel<Bf16>(const char*, const char*, int64_t, bool, float*, int64_t);
template void multiply_packed<float, float>(const Packed&, const Packed&, int64_t, float, float*, int64_t);
template void multiply_packed<Bf16, float>(const Packed&, const Packed&, int64_t, float, float*, int64_t);
template void multiply_packed<Bf16, Bf16>(const Packed&, const Packed&, int64_t, float, Bf16*, int64_t);

}  // namespace tessera::ops::kernels
