#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

// Long enough to hide the work between blocks, short enough for the first-level cache.
constexpr int64_t kBlock = 1024;

// The running sum is kept relative to the running maximum and rescaled when the maximum grows.
template <class T>
TESSERA_INLINE ComputeType<T> log_sum(const T* logits, int64_t n) {
  using C = ComputeType<T>;
  C largest = -INFINITY, sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = n - begin < kBlock ? n - begin : kBlock;
    const T* block = logits + begin;
    C top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < size; ++i) top = load(block[i]) > top ? load(block[i]) : top;
    if (top > largest) {
      sum *= exponential_below_one(largest - top);
      largest = top;
    }
    // Nothing but -inf so far: subtract 0, so that exp() gives 0 for -inf and NaN for NaN.
    const C shift = largest == -INFINITY ? C(0) : largest;
    C part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = 0; i < size; ++i) part += exponential_below_one(load(block[i]) - shift);
    sum += part;
  }
  return largest + static_cast<C>(log(sum));
}

template <class T, class C>
TESSERA_INLINE void exp_of_shifted(T* logits, C shift, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(logits[i], exponential_below_one(load(logits[i]) - shift));
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                              \
  TESSERA_KERNEL C log_sum_exp(const T* logits, int64_t n) { return log_sum(logits, n); } \
  TESSERA_KERNEL void shifted_exp(T* logits, C shift, int64_t n) { exp_of_shifted(logits, shift, n); }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

float to_float(Bf16 x) { return load(x); }

Bf16 to_bf16(float x) {
  Bf16 result;
  store(result, x);
  return result;
}

}  // namespace tessera::ops::kernels
