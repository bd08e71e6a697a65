#include "tessera/ops/kernels/lanes.h"

namespace tessera::ops::kernels {
namespace {

constexpr int kPage = static_cast<int>(kPageTokens);
static_assert(kPage == 2 * kLanes);

// Computes the scores of R queries with all keys of a page. Keys lie transposed, so that the sums run over
// tokens side by side and nothing is added across a vector.
template <int R, class T>
TESSERA_INLINE void score(const float* q, const T* keys, int64_t head_dim, Lanes (&scores)[R][2]) {
  for (int r = 0; r < R; ++r) scores[r][0] = scores[r][1] = Lanes{};
  for (int64_t i = 0; i < head_dim; ++i) {
    const Lanes low = load_lanes(keys + i * kPage), high = load_lanes(keys + i * kPage + kLanes);
    for (int r = 0; r < R; ++r) {
      scores[r][0] += q[r * head_dim + i] * low;
      scores[r][1] += q[r * head_dim + i] * high;
    }
  }
}

// Returns -1 in the lanes of the tokens [tokens.begin, tokens.end) of a page and 0 in the others; the first
// token of the page is in lane 0.
TESSERA_INLINE LaneInts lanes_between(IndexRange tokens) {
  return first_lanes(tokens.end) & ~first_lanes(tokens.begin);
}

// Turns the scores of the tokens into weights, 0 for other tokens, and returns the factor for what was summed
// before.
TESSERA_INLINE float weigh(Lanes (&scores)[2], IndexRange tokens, float cap, float& maximum, float& sum) {
  const Lanes nothing = all_lanes(-INFINITY);
  if (cap > 0) {
    for (Lanes& x : scores) x = cap * hyperbolic_tangent(x / cap);
  }
  const Lanes low = lanes_between(tokens) ? scores[0] : nothing;
  const Lanes high = lanes_between({tokens.begin - kLanes, tokens.end - kLanes}) ? scores[1] : nothing;
  const float top = largest_of(larger(low, high)), before = maximum;
  maximum = top > before ? top : before;
  // If all scores so far are -inf, 0 is subtracted, so that exp() gives 0 for -inf and NaN for NaN.
  const float shift = maximum == -INFINITY ? 0.0f : maximum;
  const float kept = before == -INFINITY ? 0.0f : exponential_below_one(before - shift);
  scores[0] = exponential_below_one(low - shift);
  scores[1] = exponential_below_one(high - shift);
  sum = sum * kept + sum_of(scores[0] + scores[1]);
  return kept;
}

// Adds the weighted values to N * 16 elements of each of R rows of `out`.
template <int R, int N, class T>
TESSERA_INLINE void add_values(const float (&weights)[R][kPage], const float (&kept)[R], const T* values,
                               IndexRange tokens, int64_t head_dim, float* out) {
  Lanes sums[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) sums[r][n] = load_lanes(out + r * head_dim + n * kLanes) * kept[r];
  }
  for (int64_t j = tokens.begin; j < tokens.end; ++j) {
    Lanes value[N];
    for (int n = 0; n < N; ++n) value[n] = load_lanes(values + j * head_dim + n * kLanes);
    for (int r = 0; r < R; ++r) {
      for (int n = 0; n < N; ++n) sums[r][n] += weights[r][j] * value[n];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) store_lanes(out + r * head_dim + n * kLanes, sums[r][n]);
  }
}

template <int R, class T>
TESSERA_INLINE void attend_rows(const float* q, const T* keys, const T* values, IndexRange tokens,
                                int64_t head_dim, float cap, float* maximum, float* sum, float* out) {
  Lanes scores[R][2];
  score<R>(q, keys, head_dim, scores);
  float weights[R][kPage], kept[R];
  for (int r = 0; r < R; ++r) {
    kept[r] = weigh(scores[r], tokens, cap, maximum[r], sum[r]);
    store_lanes(weights[r], scores[r][0]);
    store_lanes(weights[r] + kLanes, scores[r][1]);
  }
  int64_t i = 0;
  for (; i + 2 * kLanes <= head_dim; i += 2 * kLanes)
    add_values<R, 2>(weights, kept, values + i, tokens, head_dim, out + i);
  if (i + kLanes <= head_dim) {
    add_values<R, 1>(weights, kept, values + i, tokens, head_dim, out + i);
    i += kLanes;
  }
  for (; i < head_dim; ++i) {
    for (int r = 0; r < R; ++r) {
      float total = out[r * head_dim + i] * kept[r];
      for (int64_t j = tokens.begin; j < tokens.end; ++j)
        total += weights[r][j] * load(values[j * head_dim + i]);
      out[r * head_dim + i] = total;
    }
  }
}

// Attends for all rows, several at once. How many depends on nothing but `rows`, since it may decide the
// order of sums.
template <class T>
TESSERA_INLINE void attend(const float* q, const T* keys, const T* values, IndexRange tokens, int64_t rows,
                           int64_t head_dim, float cap, float* maximum, float* sum, float* out) {
  int64_t row = 0;
  while (rows - row >= 4) {
    attend_rows<4>(q + row * head_dim, keys, values, tokens, head_dim, cap, maximum + row, sum + row,
                   out + row * head_dim);
    row += 4;
  }
  if (rows - row == 3) {
    attend_rows<3>(q + row * head_dim, keys, values, tokens, head_dim, cap, maximum + row, sum + row,
                   out + row * head_dim);
  } else if (rows - row == 2) {
    attend_rows<2>(q + row * head_dim, keys, values, tokens, head_dim, cap, maximum + row, sum + row,
                   out + row * head_dim);
  } else if (rows - row == 1) {
    attend_rows<1>(q + row * head_dim, keys, values, tokens, head_dim, cap, maximum + row, sum + row,
                   out + row * head_dim);
  }
}

// float64 serves tests of exactness, by plain loops.
TESSERA_INLINE void attend(const double* q, const double* keys, const double* values, IndexRange tokens,
                           int64_t rows, int64_t head_dim, double cap, double* maximum, double* sum,
                           double* out) {
  for (int64_t row = 0; row < rows; ++row, q += head_dim, out += head_dim) {
    double scores[kPage] = {};
    for (int64_t i = 0; i < head_dim; ++i) {
      for (int j = 0; j < kPage; ++j) scores[j] += q[i] * keys[i * kPage + j];
    }
    if (cap > 0) {
      for (double& x : scores) x = cap * tanh(x / cap);
    }
    double top = maximum[row];
    for (int64_t j = tokens.begin; j < tokens.end; ++j) top = scores[j] > top ? scores[j] : top;
    const double shift = top == -INFINITY ? 0.0 : top;
    const double kept = maximum[row] == -INFINITY ? 0.0 : exp(maximum[row] - shift);
    maximum[row] = top;
    sum[row] *= kept;
    for (int64_t i = 0; i < head_dim; ++i) out[i] *= kept;
    for (int64_t j = tokens.begin; j < tokens.end; ++j) {
      const double weight = exp(scores[j] - shift);
      sum[row] += weight;
      for (int64_t i = 0; i < head_dim; ++i) out[i] += weight * values[j * head_dim + i];
    }
  }
}

template <class T, class C>
TESSERA_INLINE void merge(const C* maximum, const C* sum, const C* out, int64_t parts, int64_t part_stride,
                          int64_t head_dim, C* scratch, T* y) {
  C top = -INFINITY, total = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const C value = maximum[part * part_stride];
    top = value > top ? value : top;
  }
  const C shift = top == -INFINITY ? C(0) : top;
  for (int64_t i = 0; i < head_dim; ++i) scratch[i] = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const C factor = exponential_below_one(maximum[part * part_stride] - shift);
    const C* from = out + part * part_stride * head_dim;
    total += factor * sum[part * part_stride];
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) scratch[i] += factor * from[i];
  }
#pragma omp simd
  for (int64_t i = 0; i < head_dim; ++i) store(y[i], scratch[i] / total);
}

}  // namespace

#define TESSERA_DEFINE(T, C)                                                                             \
  void attend_page(const C* q, const T* keys, const T* values, IndexRange tokens, int64_t rows,          \
                   int64_t head_dim, C cap, C* maximum, C* sum, C* out) {                                \
    return TESSERA_BEST_ISA(attend(q, keys, values, tokens, rows, head_dim, cap, maximum, sum, out));    \
  }                                                                                                      \
  void merge_attention(const C* maximum, const C* sum, const C* out, int64_t parts, int64_t part_stride, \
                       int64_t head_dim, C* scratch, T* y) {                                             \
    return TESSERA_BEST_ISA(merge(maximum, sum, out, parts, part_stride, head_dim, scratch, y));         \
  }
TESSERA_DEFINE(float, float)
TESSERA_DEFINE(double, double)
TESSERA_DEFINE(Bf16, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
