#include "tessera/ops/kernels/attention.h"

#include <cstring>

#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

// Returns which of its `width` keys row `row` of a block sees; empty ranges begin and end within the row.
TESSERA_INLINE IndexRange visible_keys(const KeyBand& band, int64_t row, int64_t width) {
  const int64_t most = band.keys < width ? band.keys : width, first = band.first + row,
                after = band.last + row + 1;
  const int64_t end = after < 0 ? 0 : (after < most ? after : most);
  return {first < 0 ? 0 : (first < end ? first : end), end};
}

TESSERA_INLINE double largest_score(const double* scores, int64_t n) {
  double top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = scores[i] > top ? scores[i] : top;
  return top;
}

TESSERA_INLINE float largest_score(const float* scores, int64_t n) {
  const Lanes none = all_lanes(-INFINITY);
  Lanes even = none, odd = none;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = larger(load_lanes(scores + i), even);
    odd = larger(load_lanes(scores + i + kLanes), odd);
  }
  for (; i < n; i += kLanes) even = larger(first_lanes(n - i) ? load_lanes(scores + i) : none, even);
  return largest_of(larger(even, odd));
}

// Writes exp(scale * scores - shift) and returns the sum.
TESSERA_INLINE double exponentials(const double* scores, double scale, double shift, double* out, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    out[i] = exp(scores[i] * scale - shift);
    sum += out[i];
  }
  return sum;
}

template <class T>
TESSERA_INLINE float exponentials(const float* scores, float scale, float shift, T* out, int64_t n) {
  Lanes sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes p = exponential_below_one(load_lanes(scores + i) * scale - shift);
    store_lanes(out + i, p);
    sum += p;
  }
  if (i < n) {
    const Lanes p = exponential_below_one(load_lanes(scores + i) * scale - shift);
    const Lanes seen = first_lanes(n - i) ? p : Lanes{};
    store_lanes(out + i, seen);
    sum += seen;
  }
  return sum_of(sum);
}

template <class T>
TESSERA_INLINE void clear(T* row, int64_t from, int64_t to) {
  if (from < to) memset(row + from, 0, static_cast<size_t>(to - from) * sizeof(T));
}

// Rows that see none of the keys keep their running numbers. Vectors begin where a row's keys do, so the last
// one may reach into the next row: into elements that the next row, which begins later, does not see.
template <class T, class C>
TESSERA_INLINE void forward(C* scores, int64_t rows, int64_t width, int64_t stride, const KeyBand& band,
                            C scale, C* row_max, C* row_sum, C* rescale, T* probabilities) {
  for (int64_t row = 0; row < rows; ++row, scores += stride, probabilities += stride) {
    const auto [begin, end] = visible_keys(band, row, width);
    const C before = row_max[row], top = scale * largest_score(scores + begin, end - begin);
    const C largest = top > before ? top : before;
    // If all scores so far are -inf, 0 is subtracted, so that exp() gives 0 for -inf and NaN for NaN.
    const C shift = largest == -INFINITY ? C(0) : largest;
    const C sum = exponentials(scores + begin, scale, shift, probabilities + begin, end - begin);
    clear(probabilities, 0, begin);
    clear(probabilities, end, width);
    const C shrink = before == -INFINITY ? C(0) : exponential_below_one(before - shift);
    rescale[row] = shrink;
    row_sum[row] = row_sum[row] * shrink + sum;
    row_max[row] = largest;
  }
}

TESSERA_INLINE void gradients(const double* scores, const double* grad_probabilities, double scale,
                              double shift, double mean, double* probabilities, double* grad_scores,
                              int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const double p = exp(scores[i] * scale - shift), gradient = p * (grad_probabilities[i] - mean) * scale;
    probabilities[i] = p;
    grad_scores[i] = gradient;
  }
}

template <class T>
TESSERA_INLINE void gradients(const float* scores, const float* grad_probabilities, float scale, float shift,
                              float mean, T* probabilities, T* grad_scores, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const LaneInts seen = first_lanes(n - i);
    const Lanes p = exponential_below_one(load_lanes(scores + i) * scale - shift);
    const Lanes gradient = p * ((load_lanes(grad_probabilities + i) - mean) * scale);
    store_lanes(probabilities + i, seen ? p : Lanes{});
    store_lanes(grad_scores + i, seen ? gradient : Lanes{});
  }
}

template <class T, class C>
TESSERA_INLINE void backward(const C* scores, const C* grad_probabilities, int64_t rows, int64_t width,
                             int64_t stride, const KeyBand& band, C scale, const C* log_sum,
                             int64_t log_sum_stride, const C* delta, T* probabilities, T* grad_scores) {
  for (int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = visible_keys(band, row, width);
    gradients(scores + begin, grad_probabilities + begin, scale, log_sum[row * log_sum_stride], delta[row],
              probabilities + begin, grad_scores + begin, end - begin);
    for (T* made : {probabilities, grad_scores}) {
      clear(made, 0, begin);
      clear(made, end, width);
    }
    scores += stride;
    grad_probabilities += stride;
    probabilities += stride;
    grad_scores += stride;
  }
}

TESSERA_INLINE void cap_row(double* scores, int64_t n, double scale, double cap) {
  for (int64_t i = 0; i < n; ++i) scores[i] = cap * tanh(scores[i] * scale / cap);
}
TESSERA_INLINE void cap_row(float* scores, int64_t n, float scale, float cap) {
  const float factor = scale / cap;
  for (int64_t i = 0; i < n; i += kLanes) {
    store_lanes(scores + i, cap * hyperbolic_tangent(factor * load_lanes(scores + i)));
  }
}

TESSERA_INLINE void cap_row_backward(double* scores, double* gradients, int64_t n, double scale, double cap,
                                     const double* delta, int64_t delta_column) {
  for (int64_t i = 0; i < n; ++i) {
    const double t = tanh(scores[i] * scale / cap), mean = delta[i * delta_column];
    scores[i] = cap * t;
    gradients[i] = mean + (gradients[i] - mean) * scale * (1 - t * t);
  }
}
TESSERA_INLINE void cap_row_backward(float* scores, float* gradients, int64_t n, float scale, float cap,
                                     const float* delta, int64_t delta_column) {
  const float factor = scale / cap;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Lanes t = hyperbolic_tangent(factor * load_lanes(scores + i));
    const Lanes mean = delta_column == 0 ? all_lanes(*delta) : load_lanes(delta + i);
    store_lanes(scores + i, cap * t);
    store_lanes(gradients + i, mean + (load_lanes(gradients + i) - mean) * scale * (1.0f - t * t));
  }
}

template <class C>
TESSERA_INLINE void cap_scores(C* scores, int64_t rows, int64_t width, int64_t stride, C scale, C cap) {
  for (int64_t row = 0; row < rows; ++row) cap_row(scores + row * stride, width, scale, cap);
}
template <class C>
TESSERA_INLINE void cap_scores_backward(C* scores, C* gradients, int64_t rows, int64_t width, int64_t stride,
                                        C scale, C cap, const C* delta, int64_t delta_row,
                                        int64_t delta_column) {
  for (int64_t row = 0; row < rows; ++row) {
    cap_row_backward(scores + row * stride, gradients + row * stride, width, scale, cap,
                     delta + row * delta_row, delta_column);
  }
}

template <class T, class C>
TESSERA_INLINE void dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows,
                         int64_t width, C* out) {
  for (int64_t row = 0; row < rows; ++row, a += a_stride, b += b_stride) {
    C sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += load(a[i]) * load(b[i]);
    out[row] = sum;
  }
}

template <class T>
TESSERA_INLINE void drop(T* block, int64_t rows, int64_t width, int64_t stride, const PairDropout& dropout) {
  using C = ComputeType<T>;
  const C factor = static_cast<C>(dropout.factor);
  for (int64_t row = 0; row < rows; ++row, block += stride) {
    const auto draw = static_cast<uint64_t>(dropout.draws[row * dropout.stride]);
    const auto low = static_cast<uint32_t>(draw), high = static_cast<uint32_t>(draw >> 32),
               first = static_cast<uint32_t>(dropout.ahead + row);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const uint32_t word = pair_word(low, high, first - static_cast<uint32_t>(i));
      store(block[i], load(block[i]) * (word < dropout.threshold ? C(0) : factor));
    }
  }
}

TESSERA_INLINE void write_factors(const PairDropout& dropout, int64_t queries, int64_t keys, float* factors) {
  constexpr int64_t kQueries = 32;
  uint32_t low[kQueries] = {}, high[kQueries] = {};
  for (int64_t i = 0; i < queries; ++i) {
    const auto draw = static_cast<uint64_t>(dropout.draws[i * dropout.stride]);
    low[i] = static_cast<uint32_t>(draw) + static_cast<uint32_t>(i) * kPairStep;
    high[i] = static_cast<uint32_t>(draw >> 32);
  }
  const float factor = static_cast<float>(dropout.factor);
  for (int64_t key = 0; key < keys; ++key, factors += kQueries) {
    const auto distance = static_cast<uint32_t>(dropout.ahead - key);
#pragma omp simd
    for (int64_t i = 0; i < kQueries; ++i) {
      factors[i] = pair_word(low[i], high[i], distance) < dropout.threshold ? 0.0f : factor;
    }
  }
}

template <class C>
TESSERA_INLINE void scale(C* data, const C* factors, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, data += width) {
    const C factor = factors[row];
    if (factor == C(1)) continue;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) data[i] *= factor;
  }
}

template <class T, class C>
TESSERA_INLINE void divide(const C* data, const C* divisors, T* out, int64_t out_stride, int64_t rows,
                           int64_t width) {
  for (int64_t row = 0; row < rows; ++row, data += width, out += out_stride) {
    const C factor = C(1) / divisors[row];
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) store(out[i], data[i] * factor);
  }
}

template <class T, class C>
TESSERA_INLINE void sum(const C* parts, int64_t part_stride, int64_t num_parts, T* out, int64_t width) {
  constexpr int64_t kAtOnce = 64;
  for (int64_t first = 0; first < width; first += kAtOnce, parts += kAtOnce) {
    const int64_t n = width - first < kAtOnce ? width - first : kAtOnce;
    C total[kAtOnce];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) total[i] = parts[i];
    for (int64_t p = 1; p < num_parts; ++p) {
      const C* part = parts + p * part_stride;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) total[i] += part[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(out[first + i], total[i]);
  }
}

}  // namespace

void dropout_factors(const PairDropout& dropout, int64_t queries, int64_t keys, float* factors) {
  return TESSERA_BEST_ISA(write_factors(dropout, queries, keys, factors));
}

#define TESSERA_DEFINE_FOR_COMPUTE(C)                                                                        \
  void scale_rows(C* data, const C* factors, int64_t rows, int64_t width) {                                  \
    return TESSERA_BEST_ISA(scale(data, factors, rows, width));                                              \
  }                                                                                                          \
  void soft_cap(C* scores, int64_t rows, int64_t width, int64_t stride, C scale, C cap) {                    \
    return TESSERA_BEST_ISA(cap_scores(scores, rows, width, stride, scale, cap));                            \
  }                                                                                                          \
  void soft_cap_backward(C* scores, C* grad_probabilities, int64_t rows, int64_t width, int64_t stride,      \
                         C scale, C cap, const C* delta, int64_t delta_row, int64_t delta_column) {          \
    return TESSERA_BEST_ISA(cap_scores_backward(scores, grad_probabilities, rows, width, stride, scale, cap, \
                                                delta, delta_row, delta_column));                            \
  }
#define TESSERA_DEFINE(T, C)                                                                                 \
  void attention_softmax(C* scores, int64_t rows, int64_t width, int64_t stride, const KeyBand& band,        \
                         C scale, C* row_max, C* row_sum, C* rescale, T* probabilities) {                    \
    return TESSERA_BEST_ISA(                                                                                 \
        forward(scores, rows, width, stride, band, scale, row_max, row_sum, rescale, probabilities));        \
  }                                                                                                          \
  void attention_softmax_backward(const C* scores, const C* grad_probabilities, int64_t rows, int64_t width, \
                                  int64_t stride, const KeyBand& band, C scale, const C* log_sum,            \
                                  int64_t log_sum_stride, const C* delta, T* probabilities,                  \
                                  T* grad_scores) {                                                          \
    return TESSERA_BEST_ISA(backward(scores, grad_probabilities, rows, width, stride, band, scale, log_sum,  \
                                     log_sum_stride, delta, probabilities, grad_scores));                    \
  }                                                                                                          \
  void drop_pairs(T* block, int64_t rows, int64_t width, int64_t stride, const PairDropout& dropout) {       \
    return TESSERA_BEST_ISA(drop(block, rows, width, stride, dropout));                                      \
  }                                                                                                          \
  void row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,     \
                C* out) {                                                                                    \
    return TESSERA_BEST_ISA(dots(a, a_stride, b, b_stride, rows, width, out));                               \
  }                                                                                                          \
  void divide_rows(const C* data, const C* divisors, T* out, int64_t out_stride, int64_t rows,               \
                   int64_t width) {                                                                          \
    return TESSERA_BEST_ISA(divide(data, divisors, out, out_stride, rows, width));                           \
  }                                                                                                          \
  void sum_parts(const C* parts, int64_t part_stride, int64_t num_parts, T* out, int64_t width) {            \
    return TESSERA_BEST_ISA(sum(parts, part_stride, num_parts, out, width));                                 \
  }
TESSERA_DEFINE_FOR_COMPUTE(float)
TESSERA_DEFINE_FOR_COMPUTE(double)
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE
#undef TESSERA_DEFINE_FOR_COMPUTE

}  // namespace tessera::ops::kernels
