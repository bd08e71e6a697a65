#include <type_traits>

#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

TESSERA_INLINE Bf16 rounded_by(float x, uint16_t noise) {
  const uint32_t bits = bits_of(x);
  const bool is_special = (bits & 0x7f800000u) == 0x7f800000u;
  const uint32_t kept = (bits >> 16) | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u);
  return {static_cast<uint16_t>(is_special ? kept : (bits + noise) >> 16)};
}

// Stores x as element i of `to`, rounded by the element's noise if kRounds and T is Bf16.
template <bool kRounds, class T, class C>
TESSERA_INLINE void put(T* to, C x, const uint16_t* noise, int64_t i) {
  if constexpr (kRounds && std::is_same_v<T, Bf16>) {
    to[i] = rounded_by(static_cast<float>(x), noise[i]);
  } else {
    store(to[i], static_cast<ComputeType<T>>(x));
  }
}

template <bool kRounds, class V, class G, class S>
TESSERA_INLINE void update(V* value, const G* gradient, S* mean, S* square, int64_t n,
                           const AdamWFactors& factors, const AdamWNoise& noise) {
  using C = ComputeType<V>;
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
    put<kRounds>(mean, m, noise.mean, i);
    put<kRounds>(square, v, noise.square, i);
    put<kRounds>(value, decay * load(value[i]) - step_size * m / (root * square_correction + epsilon),
                 noise.value, i);
  }
}

}  // namespace

template <class V, class G, class S>
void adamw(V* value, const G* gradient, S* mean, S* square, int64_t n, const AdamWFactors& factors,
           const AdamWNoise* noise) {
  if constexpr (std::is_same_v<S, Bf16>) {
    if (noise != nullptr)
      return TESSERA_BEST_ISA(update<true>(value, gradient, mean, square, n, factors, *noise));
  }
  return TESSERA_BEST_ISA(update<false>(value, gradient, mean, square, n, factors, AdamWNoise{}));
}

#define TESSERA_DEFINE(V, G, S) \
  template void adamw(V*, const G*, S*, S*, int64_t, const AdamWFactors&, const AdamWNoise*);
TESSERA_DEFINE(float, float, float)
TESSERA_DEFINE(float, Bf16, float)
TESSERA_DEFINE(float, float, Bf16)
TESSERA_DEFINE(float, Bf16, Bf16)
TESSERA_DEFINE(double, double, double)
TESSERA_DEFINE(double, Bf16, double)
TESSERA_DEFINE(double, double, Bf16)
TESSERA_DEFINE(double, Bf16, Bf16)
TESSERA_DEFINE(Bf16, Bf16, Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
