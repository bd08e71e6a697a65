#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T, class C>
TESSERA_INLINE void rotate(const T* x, const C* cos, const C* sin, int direction, T* y, RopeHeads of) {
  const C sign = static_cast<C>(direction);
  for (int64_t head = 0; head < of.heads; ++head, x += of.head_dim, y += of.head_dim) {
    for (int64_t i = 2 * of.half; i < of.head_dim; ++i) y[i] = x[i];
    if (of.is_interleaved) {
      for (int64_t i = 0; i < of.half; ++i) {
        const C first = load(x[2 * i]), second = load(x[2 * i + 1]), s = sign * sin[i];
        store(y[2 * i], first * cos[i] - second * s);
        store(y[2 * i + 1], second * cos[i] + first * s);
      }
      continue;
    }
#pragma omp simd
    for (int64_t i = 0; i < of.half; ++i) {
      const C first = load(x[i]), second = load(x[i + of.half]), s = sign * sin[i];
      store(y[i], first * cos[i] - second * s);
      store(y[i + of.half], second * cos[i] + first * s);
    }
  }
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                                      \
  void rope_token(const T* x, const C* cos, const C* sin, int direction, T* y, RopeHeads heads) { \
    return TESSERA_BEST_ISA(rotate(x, cos, sin, direction, y, heads));                            \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
