#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE void forward(const T* gate, const T* up, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto g = load(gate[i]);
    // Rounded between the two steps, as a model that computes silu first does.
    store(y[i], round_through<T>(g / (1 + exponential(-g))) * load(up[i]));
  }
}

template <class T>
TESSERA_INLINE void backward_gate(const T* grad_y, const T* gate, const T* up, T* grad_gate, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto g = load(gate[i]);
    const auto s = sigmoid(g);
    store(grad_gate[i], load(grad_y[i]) * load(up[i]) * (s + g * s * (1 - s)));
  }
}

template <class T>
TESSERA_INLINE void backward_up(const T* grad_y, const T* gate, T* grad_up, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto g = load(gate[i]);
    store(grad_up[i], load(grad_y[i]) * (g * sigmoid(g)));
  }
}

template <class T>
TESSERA_INLINE void backward_both(const T* grad_y, const T* gate, const T* up, T* grad_gate, T* grad_up,
                                  int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto g = load(gate[i]), dy = load(grad_y[i]);
    const auto s = sigmoid(g);
    store(grad_gate[i], dy * load(up[i]) * (s + g * s * (1 - s)));
    store(grad_up[i], dy * (g * s));
  }
}

template <class T>
TESSERA_INLINE void backward(const T* grad_y, const T* gate, const T* up, T* grad_gate, T* grad_up,
                             int64_t n) {
  if (grad_gate != nullptr && grad_up != nullptr) {
    backward_both(grad_y, gate, up, grad_gate, grad_up, n);
  } else if (grad_gate != nullptr) {
    backward_gate(grad_y, gate, up, grad_gate, n);
  } else if (grad_up != nullptr) {
    backward_up(grad_y, gate, grad_up, n);
  }
}

}  // namespace

#define TESSERA_DEFINE(T)                                                                                    \
  TESSERA_KERNEL void swiglu_forward(const T* gate, const T* up, T* y, int64_t n) {                          \
    forward(gate, up, y, n);                                                                                 \
  }                                                                                                          \
  TESSERA_KERNEL void swiglu_backward(const T* grad_y, const T* gate, const T* up, T* grad_gate, T* grad_up, \
                                      int64_t n) {                                                           \
    backward(grad_y, gate, up, grad_gate, grad_up, n);                                                       \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
