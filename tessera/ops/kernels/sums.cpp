#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE double squares(const T* x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(load(x[i]));
    sum += value * value;
  }
  return sum;
}

TESSERA_INLINE float total(const float* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace

double sum_of_squares(const float* x, int64_t n) { return TESSERA_BEST_ISA(squares(x, n)); }
double sum_of_squares(const double* x, int64_t n) { return TESSERA_BEST_ISA(squares(x, n)); }
double sum_of_squares(const Bf16* x, int64_t n) { return TESSERA_BEST_ISA(squares(x, n)); }

float sum_floats(const float* x, int64_t n) { return TESSERA_BEST_ISA(total(x, n)); }

}  // namespace tessera::ops::kernels
