#include <math.h>

#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

struct Gradients {
  Pair gate, up;
};

template <class T>
TESSERA_INLINE Lanes activate(Lanes gate, Lanes up) {
  // The result is rounded between the two steps, as in a model that computes silu first.
  return rounded_to<T>(gate / one_plus_exponential(-gate)) * up;
}

template <class T>
TESSERA_INLINE Pair activate(Pair gate, Pair up) {
  return {activate<T>(gate.a, up.a), activate<T>(gate.b, up.b)};
}

TESSERA_INLINE void differentiate(Lanes grad_y, Lanes gate, Lanes up, Lanes& grad_gate, Lanes& grad_up) {
  const Lanes s = 1.0f / one_plus_exponential(-gate);
  const Lanes silu = gate * s;
  grad_gate = grad_y * up * (s + silu * (1.0f - s));
  grad_up = grad_y * silu;
}

TESSERA_INLINE Gradients differentiate(Pair grad_y, Pair gate, Pair up) {
  Gradients gradients;
  differentiate(grad_y.a, gate.a, up.a, gradients.gate.a, gradients.up.a);
  differentiate(grad_y.b, gate.b, up.b, gradients.gate.b, gradients.up.b);
  return gradients;
}

template <class T>
TESSERA_INLINE void forward(const T* gate, const T* up, T* y, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    store_pair(y + i, activate<T>(load_pair(gate + i), load_pair(up + i)));
  }
  if (i < n) store_first(y + i, activate<T>(load_first(gate + i, n - i), load_first(up + i, n - i)), n - i);
}

TESSERA_INLINE void forward(const double* gate, const double* up, double* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

template <class T>
TESSERA_INLINE void backward(const T* grad_y, const T* gate, const T* up, T* grad_gate, T* grad_up,
                             int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    const Gradients gradients = differentiate(load_pair(grad_y + i), load_pair(gate + i), load_pair(up + i));
    if (grad_gate != nullptr) store_pair(grad_gate + i, gradients.gate);
    if (grad_up != nullptr) store_pair(grad_up + i, gradients.up);
  }
  if (i == n) return;
  const Gradients gradients =
      differentiate(load_first(grad_y + i, n - i), load_first(gate + i, n - i), load_first(up + i, n - i));
  if (grad_gate != nullptr) store_first(grad_gate + i, gradients.gate, n - i);
  if (grad_up != nullptr) store_first(grad_up + i, gradients.up, n - i);
}

TESSERA_INLINE void backward(const double* grad_y, const double* gate, const double* up, double* grad_gate,
                             double* grad_up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double s = 1 / (1 + exp(-gate[i])), silu = gate[i] * s;
    if (grad_gate != nullptr) grad_gate[i] = grad_y[i] * up[i] * (s + silu * (1 - s));
    if (grad_up != nullptr) grad_up[i] = grad_y[i] * silu;
  }
}

}  // namespace

#define TESSERA_DEFINE(T)                                                                                  \
  void swiglu_forward(const T* gate, const T* up, T* y, int64_t n) {                                       \
    return TESSERA_BEST_ISA(forward(gate, up, y, n));                                                      \
  }                                                                                                        \
  void swiglu_backward(const T* grad_y, const T* gate, const T* up, T* grad_gate, T* grad_up, int64_t n) { \
    return TESSERA_BEST_ISA(backward(grad_y, gate, up, grad_gate, grad_up, n));                            \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
