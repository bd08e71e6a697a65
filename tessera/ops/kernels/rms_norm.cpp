#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE void sums(const T* a, const T* b, T* sum, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    const Pair x = load_pair(a + i), y = load_pair(b + i);
    store_pair(sum + i, {x.a + y.a, x.b + y.b});
  }
  for (; i < n; ++i) store(sum[i], load(a[i]) + load(b[i]));
}

TESSERA_INLINE void sums(const double* a, const double* b, double* sum, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

template <class T, class C>
TESSERA_INLINE void scale_row(const T* x, const C* weight, C inverse, T* y, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) store(y[i], weight[i] * round_through<T>(load(x[i]) * inverse));
}

template <class T, class C>
TESSERA_INLINE void forward(const T* x, const C* weight, double eps, T* y, C* inverse_rms, int64_t rows,
                            int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    C squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += load(x[i]) * load(x[i]);
    inverse_rms[row] = C(1) / static_cast<C>(sqrt(squares / static_cast<C>(width) + static_cast<C>(eps)));
    scale_row(x, weight, inverse_rms[row], y, width);
  }
}

template <class T, class C>
TESSERA_INLINE void backward(const T* grad_y, const T* x, const C* weight, const C* inverse_rms,
                             const T* grad_residual, T* grad_x, C* grad_weight, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, grad_y += width) {
    const C inverse = inverse_rms[row];
    if (grad_weight != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) grad_weight[i] += load(grad_y[i]) * (load(x[i]) * inverse);
    }
    if (grad_x == nullptr) continue;
    C dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < width; ++i) dot += load(grad_y[i]) * weight[i] * load(x[i]);
    const C scale = dot * inverse * inverse / static_cast<C>(width);
    if (grad_residual != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        store(grad_x[i],
              load(grad_residual[i]) + inverse * (load(grad_y[i]) * weight[i] - load(x[i]) * scale));
      }
      grad_residual += width;
    } else {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        store(grad_x[i], inverse * (load(grad_y[i]) * weight[i] - load(x[i]) * scale));
      }
    }
    grad_x += width;
  }
}

template <class T, class C>
TESSERA_INLINE void scale_rows(const T* x, const C* weight, const C* inverse_rms, T* y, int64_t rows,
                               int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    scale_row(x + row * width, weight, inverse_rms[row], y + row * width, width);
  }
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                                               \
  void add(const T* a, const T* b, T* sum, int64_t n) { return TESSERA_BEST_ISA(sums(a, b, sum, n)); }     \
  void rms_norm_forward(const T* x, const C* weight, double eps, T* y, C* inverse_rms, int64_t rows,       \
                        int64_t width) {                                                                   \
    return TESSERA_BEST_ISA(forward(x, weight, eps, y, inverse_rms, rows, width));                         \
  }                                                                                                        \
  void rms_norm_scale(const T* x, const C* weight, const C* inverse_rms, T* y, int64_t rows,               \
                      int64_t width) {                                                                     \
    return TESSERA_BEST_ISA(scale_rows(x, weight, inverse_rms, y, rows, width));                           \
  }                                                                                                        \
  void rms_norm_backward(const T* grad_y, const T* x, const C* weight, const C* inverse_rms,               \
                         const T* grad_residual, T* grad_x, C* grad_weight, int64_t rows, int64_t width) { \
    return TESSERA_BEST_ISA(                                                                               \
        backward(grad_y, x, weight, inverse_rms, grad_residual, grad_x, grad_weight, rows, width));        \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
