#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

// Multiply four rows of the weight by one, two or four rows of x: each weight that comes from memory is used
// for all of them. The sums are named one by one so that each becomes a register.
template <class C>
TESSERA_INLINE void dot_4x4(const C* w, const C* x, int64_t in, C (&sums)[4][4]) {
  C s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  C s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
  const C *w0 = w, *w1 = w + in, *w2 = w + 2 * in, *w3 = w + 3 * in;
  const C *x0 = x, *x1 = x + in, *x2 = x + 2 * in, *x3 = x + 3 * in;
#pragma omp simd reduction(+ : s00, s01, s02, s03, s10, s11, s12, s13, s20, s21, s22, s23, s30, s31, s32, s33)
  for (int64_t i = 0; i < in; ++i) {
    const C a0 = w0[i], a1 = w1[i], a2 = w2[i], a3 = w3[i];
    const C b0 = x0[i], b1 = x1[i], b2 = x2[i], b3 = x3[i];
    s00 += a0 * b0, s01 += a1 * b0, s02 += a2 * b0, s03 += a3 * b0;
    s10 += a0 * b1, s11 += a1 * b1, s12 += a2 * b1, s13 += a3 * b1;
    s20 += a0 * b2, s21 += a1 * b2, s22 += a2 * b2, s23 += a3 * b2;
    s30 += a0 * b3, s31 += a1 * b3, s32 += a2 * b3, s33 += a3 * b3;
  }
  sums[0][0] = s00, sums[0][1] = s01, sums[0][2] = s02, sums[0][3] = s03;
  sums[1][0] = s10, sums[1][1] = s11, sums[1][2] = s12, sums[1][3] = s13;
  sums[2][0] = s20, sums[2][1] = s21, sums[2][2] = s22, sums[2][3] = s23;
  sums[3][0] = s30, sums[3][1] = s31, sums[3][2] = s32, sums[3][3] = s33;
}

template <class C>
TESSERA_INLINE void dot_4x2(const C* w, const C* x, int64_t in, C (&sums)[2][4]) {
  C s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  const C *w0 = w, *w1 = w + in, *w2 = w + 2 * in, *w3 = w + 3 * in;
  const C *x0 = x, *x1 = x + in;
#pragma omp simd reduction(+ : s00, s01, s02, s03, s10, s11, s12, s13)
  for (int64_t i = 0; i < in; ++i) {
    const C a0 = w0[i], a1 = w1[i], a2 = w2[i], a3 = w3[i];
    const C b0 = x0[i], b1 = x1[i];
    s00 += a0 * b0, s01 += a1 * b0, s02 += a2 * b0, s03 += a3 * b0;
    s10 += a0 * b1, s11 += a1 * b1, s12 += a2 * b1, s13 += a3 * b1;
  }
  sums[0][0] = s00, sums[0][1] = s01, sums[0][2] = s02, sums[0][3] = s03;
  sums[1][0] = s10, sums[1][1] = s11, sums[1][2] = s12, sums[1][3] = s13;
}

template <class C>
TESSERA_INLINE void dot_4x1(const C* w, const C* x, int64_t in, C (&sums)[1][4]) {
  C s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  const C *w0 = w, *w1 = w + in, *w2 = w + 2 * in, *w3 = w + 3 * in;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < in; ++i) {
    const C b = x[i];
    s0 += w0[i] * b, s1 += w1[i] * b, s2 += w2[i] * b, s3 += w3[i] * b;
  }
  sums[0][0] = s0, sums[0][1] = s1, sums[0][2] = s2, sums[0][3] = s3;
}

template <class C>
TESSERA_INLINE C dot(const C* w, const C* x, int64_t in) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < in; ++i) sum += w[i] * x[i];
  return sum;
}

template <int R, class C, class Y>
TESSERA_INLINE void put(const C (&sums)[R][4], const C* bias, Y* y, int64_t y_stride) {
  for (int r = 0; r < R; ++r) {
    for (int o = 0; o < 4; ++o)
      store(y[r * y_stride + o], bias == nullptr ? sums[r][o] : sums[r][o] + bias[o]);
  }
}

TESSERA_INLINE const float* widened(const float* w, int64_t, float*) { return w; }
TESSERA_INLINE const double* widened(const double* w, int64_t, double*) { return w; }
// Widens the weights once for all rows of x. It does so for a single row too, so that its sums have the same
// order as among others.
TESSERA_INLINE const float* widened(const Bf16* w, int64_t n, float* scratch) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) scratch[i] = load(w[i]);
  return scratch;
}

template <class W, class C, class Y>
TESSERA_INLINE void multiply(const C* x, const W* weight, const C* bias, Y* y, int64_t rows, int64_t in,
                             int64_t outs, int64_t y_stride, C* scratch) {
  int64_t o = 0;
  for (; o + 4 <= outs; o += 4) {
    const C* w = widened(weight + o * in, 4 * in, scratch);
    const C* b = bias == nullptr ? nullptr : bias + o;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      C sums[4][4];
      dot_4x4(w, x + r * in, in, sums);
      put<4>(sums, b, y + r * y_stride + o, y_stride);
    }
    if (r + 2 <= rows) {
      C sums[2][4];
      dot_4x2(w, x + r * in, in, sums);
      put<2>(sums, b, y + r * y_stride + o, y_stride);
      r += 2;
    }
    if (r < rows) {
      C sums[1][4];
      dot_4x1(w, x + r * in, in, sums);
      put<1>(sums, b, y + r * y_stride + o, y_stride);
    }
  }
  for (; o < outs; ++o) {
    const C* w = widened(weight + o * in, in, scratch);
    for (int64_t r = 0; r < rows; ++r) {
      const C sum = dot(w, x + r * in, in);
      store(y[r * y_stride + o], bias == nullptr ? sum : sum + bias[o]);
    }
  }
}

}  // namespace

#define TESSERA_DEFINE(W, C, Y)                                                                 \
  void small_linear(const C* x, const W* weight, const C* bias, Y* y, int64_t rows, int64_t in, \
                    int64_t outs, int64_t y_stride, C* scratch) {                               \
    return TESSERA_BEST_ISA(multiply(x, weight, bias, y, rows, in, outs, y_stride, scratch));   \
  }
TESSERA_DEFINE(float, float, float)
TESSERA_DEFINE(double, double, double)
TESSERA_DEFINE(Bf16, float, Bf16)
TESSERA_DEFINE(Bf16, float, float)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
