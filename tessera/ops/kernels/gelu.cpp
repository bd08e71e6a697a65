#include <math.h>

#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

// The formula is x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)) for u = kRoot (x + kCubic x^3).
constexpr double kRoot = 0.79788456080286535588, kCubic = 0.044715;
// Beyond this distance from 0 the result is x, or 0, and cubes would overflow.
constexpr float kFar = 30.0f;

TESSERA_INLINE Lanes twice_u(Lanes x) {
  const Lanes low = all_lanes(-kFar), high = all_lanes(kFar);
  // A lane that is NaN compares false, and stays.
  const Lanes z = x < low ? low : (x > high ? high : x);
  return z * (static_cast<float>(2 * kRoot) + static_cast<float>(2 * kRoot * kCubic) * z * z);
}

TESSERA_INLINE Lanes activate(Lanes x) { return x / one_plus_exponential(-twice_u(x)); }

TESSERA_INLINE Pair activate(Pair x) { return {activate(x.a), activate(x.b)}; }

TESSERA_INLINE Lanes differentiate(Lanes grad_y, Lanes x) {
  const Lanes low = all_lanes(-kFar), high = all_lanes(kFar);
  const Lanes z = x < low ? low : (x > high ? high : x);
  const Lanes s = 1.0f / one_plus_exponential(-twice_u(x));
  const Lanes slope = static_cast<float>(2 * kRoot) + static_cast<float>(6 * kRoot * kCubic) * z * z;
  return grad_y * (s + z * s * (1.0f - s) * slope);
}

TESSERA_INLINE Pair differentiate(Pair grad_y, Pair x) {
  return {differentiate(grad_y.a, x.a), differentiate(grad_y.b, x.b)};
}

template <class T>
TESSERA_INLINE void forward(const T* x, T* y, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) store_pair(y + i, activate(load_pair(x + i)));
  if (i < n) store_first(y + i, activate(load_first(x + i, n - i)), n - i);
}

TESSERA_INLINE void forward(const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] / (1 + exp(-2 * kRoot * (x[i] + kCubic * x[i] * x[i] * x[i])));
  }
}

template <class T>
TESSERA_INLINE void backward(const T* grad_y, const T* x, T* grad_x, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    store_pair(grad_x + i, differentiate(load_pair(grad_y + i), load_pair(x + i)));
  }
  if (i < n)
    store_first(grad_x + i, differentiate(load_first(grad_y + i, n - i), load_first(x + i, n - i)), n - i);
}

TESSERA_INLINE void backward(const double* grad_y, const double* x, double* grad_x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double square = x[i] * x[i], s = 1 / (1 + exp(-2 * kRoot * x[i] * (1 + kCubic * square)));
    // `rest` is 0 for x so large that the slope would overflow.
    const double rest = x[i] * s * (1 - s);
    grad_x[i] = grad_y[i] * (rest == 0 ? s : s + rest * 2 * kRoot * (1 + 3 * kCubic * square));
  }
}

}  // namespace

#define TESSERA_DEFINE(T)                                                                            \
  void gelu_tanh_forward(const T* x, T* y, int64_t n) { return TESSERA_BEST_ISA(forward(x, y, n)); } \
  void gelu_tanh_backward(const T* grad_y, const T* x, T* grad_x, int64_t n) {                       \
    return TESSERA_BEST_ISA(backward(grad_y, x, grad_x, n));                                         \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
