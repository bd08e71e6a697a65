// Inner loops of the ops on plain arrays, compiled for several instruction sets, of which the best is chosen
// when they run. One thread each; the callers split the rows over threads. No LibTorch here.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops::kernels {

// Numbers of bfloat16 and float16 as stored.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// The type in which a stored type is computed.
template <class T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};
template <class T>
using ComputeType = typename Compute<T>::type;

// Unless said otherwise, every family below exists for T = float, double and Bf16, with C = ComputeType<T>.

// add: sum = a + b over n elements.
//
// rms_norm_forward: y = weight * (x * inverse_rms), row by row; x, y: [rows, width]; weight: [width];
// inverse_rms: [rows], written. rms_norm_scale: the same y with inverse_rms given.
//
// rms_norm_backward: writes grad_x, [rows, width] or null, with grad_residual added unless that is null, and
// adds to grad_weight, [width] or null.
#define TESSERA_DECLARE(T, C)                                                                                \
  void add(const T* a, const T* b, T* sum, int64_t n);                                                       \
  void rms_norm_forward(const T* x, const C* weight, double eps, T* y, C* inverse_rms, int64_t rows,         \
                        int64_t width);                                                                      \
  void rms_norm_scale(const T* x, const C* weight, const C* inverse_rms, T* y, int64_t rows, int64_t width); \
  void rms_norm_backward(const T* grad_y, const T* x, const C* weight, const C* inverse_rms,                 \
                         const T* grad_residual, T* grad_x, C* grad_weight, int64_t rows, int64_t width);
TESSERA_DECLARE(float, float)
TESSERA_DECLARE(double, double)
TESSERA_DECLARE(Bf16, float)
#undef TESSERA_DECLARE

// Computes y = silu(gate) * up over n elements.
void swiglu_forward(const float* gate, const float* up, float* y, int64_t n);
void swiglu_forward(const double* gate, const double* up, double* y, int64_t n);
void swiglu_forward(const Bf16* gate, const Bf16* up, Bf16* y, int64_t n);

// Writes the gradients of gate and up; grad_gate, grad_up: n elements each, or null.
void swiglu_backward(const float* grad_y, const float* gate, const float* up, float* grad_gate,
                     float* grad_up, int64_t n);
void swiglu_backward(const double* grad_y, const double* gate, const double* up, double* grad_gate,
                     double* grad_up, int64_t n);
void swiglu_backward(const Bf16* grad_y, const Bf16* gate, const Bf16* up, Bf16* grad_gate, Bf16* grad_up,
                     int64_t n);

// Computes y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 over n elements, and its gradient.
void gelu_tanh_forward(const float* x, float* y, int64_t n);
void gelu_tanh_forward(const double* x, double* y, int64_t n);
void gelu_tanh_forward(const Bf16* x, Bf16* y, int64_t n);

void gelu_tanh_backward(const float* grad_y, const float* x, float* grad_x, int64_t n);
void gelu_tanh_backward(const double* grad_y, const double* x, double* grad_x, int64_t n);
void gelu_tanh_backward(const Bf16* grad_y, const Bf16* x, Bf16* grad_x, int64_t n);

// The heads of one token, of which ops::RopeForm says what is rotated.
struct RopeHeads {
  int64_t heads = 0, head_dim = 0, half = 0;
  bool is_interleaved = false;
};
// Rotates the heads of one token: x, y: [heads, head_dim], which may be the same; cos, sin: [half];
// direction: 1, or -1 to rotate back.
void rope_token(const float* x, const float* cos, const float* sin, int direction, float* y, RopeHeads heads);
void rope_token(const double* x, const double* cos, const double* sin, int direction, double* y,
                RopeHeads heads);
void rope_token(const Bf16* x, const float* cos, const float* sin, int direction, Bf16* y, RopeHeads heads);

// Returns log(sum(exp(logits))) over n > 0 logits, in one pass.
float log_sum_exp(const float* logits, int64_t n);
double log_sum_exp(const double* logits, int64_t n);
float log_sum_exp(const Bf16* logits, int64_t n);
// Computes logits[i] = exp(logits[i] - shift), in place, for a shift that no logit exceeds by more than
// rounding.
void shifted_exp(float* logits, float shift, int64_t n);
void shifted_exp(double* logits, double shift, int64_t n);
void shifted_exp(Bf16* logits, float shift, int64_t n);

// Tokens that a page of a cache of keys and values holds.
inline constexpr int64_t kPageTokens = 32;

// Adds the tokens `tokens` of a page, at least one, to the attention of `rows` queries. q: [rows, head_dim],
// already scaled; scores s become cap tanh(s / cap) if cap > 0; keys: [head_dim, kPageTokens], values:
// [kPageTokens, head_dim]. maximum, sum: [rows], the running maximum (-infinity before the first page) and
// sum (0) of the softmax; out: [rows, head_dim], the running weighted sum of the values (0), not yet divided.
void attend_page(const float* q, const float* keys, const float* values, IndexRange tokens, int64_t rows,
                 int64_t head_dim, float cap, float* maximum, float* sum, float* out);
void attend_page(const double* q, const double* keys, const double* values, IndexRange tokens, int64_t rows,
                 int64_t head_dim, double cap, double* maximum, double* sum, double* out);
void attend_page(const float* q, const Bf16* keys, const Bf16* values, IndexRange tokens, int64_t rows,
                 int64_t head_dim, float cap, float* maximum, float* sum, float* out);
// Writes one query's result y, [head_dim], from what attend_page left for `parts` parts of its keys; part p's
// numbers lie at maximum[p part_stride], sum[p part_stride] and out[p part_stride head_dim]. scratch:
// [head_dim].
void merge_attention(const float* maximum, const float* sum, const float* out, int64_t parts,
                     int64_t part_stride, int64_t head_dim, float* scratch, float* y);
void merge_attention(const double* maximum, const double* sum, const double* out, int64_t parts,
                     int64_t part_stride, int64_t head_dim, double* scratch, double* y);
void merge_attention(const float* maximum, const float* sum, const float* out, int64_t parts,
                     int64_t part_stride, int64_t head_dim, float* scratch, Bf16* y);

// Computes y[r y_stride + o] = sum_i weight[o, i] x[r, i] + bias[o] for `rows` rows of x, [rows, in], and
// `outs` rows of weight, [outs, in]; bias: [outs] or null. Reads every weight once, for any number of rows,
// and sums a row of x in the same order whatever the other rows are. scratch: [4, in].
void small_linear(const float* x, const float* weight, const float* bias, float* y, int64_t rows, int64_t in,
                  int64_t outs, int64_t y_stride, float* scratch);
void small_linear(const double* x, const double* weight, const double* bias, double* y, int64_t rows,
                  int64_t in, int64_t outs, int64_t y_stride, double* scratch);
void small_linear(const float* x, const Bf16* weight, const float* bias, Bf16* y, int64_t rows, int64_t in,
                  int64_t outs, int64_t y_stride, float* scratch);
void small_linear(const float* x, const Bf16* weight, const float* bias, float* y, int64_t rows, int64_t in,
                  int64_t outs, int64_t y_stride, float* scratch);

// Factors of one update of Adam with decoupled weight decay.
struct AdamWFactors {
  double gradient_scale, beta1, beta2, epsilon;
  double decay;              // 1 - learning rate * weight decay
  double step_size;          // learning rate / (1 - beta1^t)
  double square_correction;  // 1 / sqrt(1 - beta2^t)
};
// 16 random bits for each of n elements, by which results stored in Bf16 are rounded: the bits are added to
// the lower half of a float32 result, which is then dropped, so that it is rounded up with the probability
// that its lower half says; infinity and NaN stay. Null: results are rounded to nearest even.
struct AdamWNoise {
  const uint16_t *value = nullptr, *mean = nullptr, *square = nullptr;
};
// Updates n elements. For g = gradient * gradient_scale: mean += (1 - beta1) (g - mean); square = beta2
// square + (1 - beta2) g^2; value = decay value - step_size mean / (sqrt(square) square_correction +
// epsilon), by mean and square before they are rounded. Exists for V float, double and Bf16, each with G = V
// or Bf16 and S = V or Bf16. noise: null, or noise for those of the results that are stored in Bf16.
template <class V, class G, class S>
void adamw(V* value, const G* gradient, S* mean, S* square, int64_t n, const AdamWFactors& factors,
           const AdamWNoise* noise = nullptr);

// Returns the sum of the squares of n elements, summed in float64.
double sum_of_squares(const float* x, int64_t n);
double sum_of_squares(const double* x, int64_t n);
double sum_of_squares(const Bf16* x, int64_t n);

// Returns the sum of n floats, at the speed at which they can be read.
float sum_floats(const float* x, int64_t n);

// Rounds n elements of `from` to nearest even into `to`.
void narrow(const float* from, Bf16* to, int64_t n);
// Writes n elements of `from` as floats.
void widen(const Bf16* from, float* to, int64_t n);

float to_float(Bf16 x);
Bf16 to_bf16(float x);

// Writes the four words that Philox4x32-10 makes of each of the 128-bit counters with the lower halves first
// .. first + blocks - 1 and the upper half `high`.
void philox_blocks(uint64_t first, uint64_t high, std::array<uint32_t, 2> key, uint32_t* words,
                   int64_t blocks);
// Computes out[i] = words[i] < threshold ? 0 : keep.
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, float* out, int64_t n);
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, double* out, int64_t n);
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, Bf16* out, int64_t n);

}  // namespace tessera::ops::kernels
