#include <math.h>

#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

// Logits of a block: long enough to hide the work between blocks, short enough for the first-level cache.
constexpr int64_t kBlock = 1024;

TESSERA_INLINE double block_max(const double* x, int64_t n) {
  double top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

TESSERA_INLINE double block_sum(const double* x, double shift, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += exp(x[i] - shift);
  return sum;
}

template <class T>
TESSERA_INLINE float block_max(const T* x, int64_t n) {
  const Lanes none = all_lanes(-INFINITY);
  Pair top = {none, none};
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    const Pair next = load_pair(x + i);
    top = {larger(next.a, top.a), larger(next.b, top.b)};
  }
  float largest = largest_of(larger(top.a, top.b));
  for (; i < n; ++i) largest = load(x[i]) > largest ? load(x[i]) : largest;
  return largest;
}

template <class T>
TESSERA_INLINE float block_sum(const T* x, float shift, int64_t n) {
  Pair sum = {};
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) {
    const Pair next = load_pair(x + i);
    sum.a += exponential_below_one(next.a - shift);
    sum.b += exponential_below_one(next.b - shift);
  }
  float total = sum_of(sum.a + sum.b);
  for (; i < n; ++i) total += exponential_below_one(load(x[i]) - shift);
  return total;
}

// The running sum is kept relative to the running maximum and rescaled when the maximum grows.
template <class T>
TESSERA_INLINE ComputeType<T> log_sum(const T* logits, int64_t n) {
  using C = ComputeType<T>;
  C largest = -INFINITY, sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = n - begin < kBlock ? n - begin : kBlock;
    const C top = block_max(logits + begin, size);
    if (top > largest) {
      sum *= exponential_below_one(largest - top);
      largest = top;
    }
    // If all logits so far are -inf, 0 is subtracted, so that exp() gives 0 for -inf and NaN for NaN.
    sum += block_sum(logits + begin, largest == -INFINITY ? C(0) : largest, size);
  }
  return largest + static_cast<C>(log(sum));
}

TESSERA_INLINE void widened(const Bf16* from, float* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = load(from[i]);
}

TESSERA_INLINE void exp_of_shifted(double* logits, double shift, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) logits[i] = exp(logits[i] - shift);
}

TESSERA_INLINE Pair exp_of_shifted(Pair x, float shift) {
  return {exponential_below_one(x.a - shift), exponential_below_one(x.b - shift)};
}

template <class T>
TESSERA_INLINE void exp_of_shifted(T* logits, float shift, int64_t n) {
  int64_t i = 0;
  for (; i + kPair <= n; i += kPair) store_pair(logits + i, exp_of_shifted(load_pair(logits + i), shift));
  if (i < n) store_first(logits + i, exp_of_shifted(load_first(logits + i, n - i), shift), n - i);
}

TESSERA_INLINE void rounded(const float* from, Bf16* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_lanes(to + i, load_lanes(from + i));
  for (; i < n; ++i) store(to[i], from[i]);
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                                 \
  C log_sum_exp(const T* logits, int64_t n) { return TESSERA_BEST_ISA(log_sum(logits, n)); } \
  void shifted_exp(T* logits, C shift, int64_t n) {                                          \
    return TESSERA_BEST_ISA(exp_of_shifted(logits, shift, n));                               \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

void widen(const Bf16* from, float* to, int64_t n) { return TESSERA_BEST_ISA(widened(from, to, n)); }
void narrow(const float* from, Bf16* to, int64_t n) { return TESSERA_BEST_ISA(rounded(from, to, n)); }

float to_float(Bf16 x) { return load(x); }

Bf16 to_bf16(float x) {
  Bf16 result;
  store(result, x);
  return result;
}

}  // namespace tessera::ops::kernels
