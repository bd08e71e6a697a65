#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T, class G, class C>
TESSERA_INLINE void update(T* value, const G* gradient, T* mean, T* square, int64_t n,
                           const AdamWFactors& factors) {
  const C scale = static_cast<C>(factors.gradient_scale), decay = static_cast<C>(factors.decay);
  const C new_mean = static_cast<C>(1.0 - factors.beta1), beta2 = static_cast<C>(factors.beta2);
  const C new_square = static_cast<C>(1.0 - factors.beta2), step_size = static_cast<C>(factors.step_size);
  const C square_correction = static_cast<C>(factors.square_correction);
  const C epsilon = static_cast<C>(factors.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C g = static_cast<C>(load(gradient[i])) * scale;
    const C m = load(mean[i]) + new_mean * (g - load(mean[i]));
    const C v = beta2 * load(square[i]) + new_square * (g * g);
    const C root = static_cast<C>(sqrt(v));
    store(mean[i], m);
    store(square[i], v);
    store(value[i], decay * load(value[i]) - step_size * m / (root * square_correction + epsilon));
  }
}

}  // namespace

#define TESSERA_DEFINE(T, G, C)                                                                         \
  void adamw(T* value, const G* gradient, T* mean, T* square, int64_t n, const AdamWFactors& factors) { \
    return TESSERA_BEST_ISA(update<T, G, C>(value, gradient, mean, square, n, factors));                \
  }
TESSERA_DEFINE(float, float, float)
TESSERA_DEFINE(float, Bf16, float)
TESSERA_DEFINE(double, double, double)
TESSERA_DEFINE(double, Bf16, double)
TESSERA_DEFINE(Bf16, Bf16, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
