#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T, class C>
TESSERA_INLINE void rotate(const T* x, const C* cos, const C* sin, int direction, T* y, int64_t heads,
                           int64_t half) {
  const C sign = static_cast<C>(direction);
  for (int64_t head = 0; head < heads; ++head, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const C first = load(x[i]), second = load(x[i + half]), s = sign * sin[i];
      store(y[i], first * cos[i] - second * s);
      store(y[i + half], second * cos[i] + first * s);
    }
  }
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                                  \
  void rope_token(const T* x, const C* cos, const C* sin, int direction, T* y, int64_t heads, \
                  int64_t half) {                                                             \
    return TESSERA_BEST_ISA(rotate(x, cos, sin, direction, y, heads, half));                  \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
