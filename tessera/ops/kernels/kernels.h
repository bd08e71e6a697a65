// Inner loops of the ops on plain arrays, compiled for several instruction sets and chosen at load time. One
// thread each; the callers split the rows over threads. No LibTorch here.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::ops::kernels {

// bfloat16 as stored.
struct Bf16 {
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

// Every family below exists for T = float, double and Bf16, with C = ComputeType<T>.

// y = weight * x * inverse_rms, row by row; x, y: [rows, width]; weight: [width]; inverse_rms: [rows],
// written.
void rms_norm_forward(const float* x, const float* weight, double eps, float* y, float* inverse_rms,
                      int64_t rows, int64_t width);
void rms_norm_forward(const double* x, const double* weight, double eps, double* y, double* inverse_rms,
                      int64_t rows, int64_t width);
void rms_norm_forward(const Bf16* x, const float* weight, double eps, Bf16* y, float* inverse_rms,
                      int64_t rows, int64_t width);

// grad_x: [rows, width], or null; grad_weight: [width], added to, or null.
void rms_norm_backward(const float* grad_y, const float* x, const float* weight, const float* inverse_rms,
                       float* grad_x, float* grad_weight, int64_t rows, int64_t width);
void rms_norm_backward(const double* grad_y, const double* x, const double* weight, const double* inverse_rms,
                       double* grad_x, double* grad_weight, int64_t rows, int64_t width);
void rms_norm_backward(const Bf16* grad_y, const Bf16* x, const float* weight, const float* inverse_rms,
                       Bf16* grad_x, float* grad_weight, int64_t rows, int64_t width);

// y = silu(gate) * up over n elements.
void swiglu_forward(const float* gate, const float* up, float* y, int64_t n);
void swiglu_forward(const double* gate, const double* up, double* y, int64_t n);
void swiglu_forward(const Bf16* gate, const Bf16* up, Bf16* y, int64_t n);

// grad_gate, grad_up: n elements each, or null.
void swiglu_backward(const float* grad_y, const float* gate, const float* up, float* grad_gate,
                     float* grad_up, int64_t n);
void swiglu_backward(const double* grad_y, const double* gate, const double* up, double* grad_gate,
                     double* grad_up, int64_t n);
void swiglu_backward(const Bf16* grad_y, const Bf16* gate, const Bf16* up, Bf16* grad_gate, Bf16* grad_up,
                     int64_t n);

// Rotates the heads of one token: x: [heads, 2 half] with `head_stride` elements between heads; y: dense.
// cos, sin: [half]; direction: 1, or -1 to rotate back.
void rope_token(const float* x, int64_t head_stride, const float* cos, const float* sin, int direction,
                float* y, int64_t heads, int64_t half);
void rope_token(const double* x, int64_t head_stride, const double* cos, const double* sin, int direction,
                double* y, int64_t heads, int64_t half);
void rope_token(const Bf16* x, int64_t head_stride, const float* cos, const float* sin, int direction,
                Bf16* y, int64_t heads, int64_t half);

// log(sum(exp(logits))) over n > 0 logits, in one pass.
float log_sum_exp(const float* logits, int64_t n);
double log_sum_exp(const double* logits, int64_t n);
float log_sum_exp(const Bf16* logits, int64_t n);
// logits[i] = exp(logits[i] - shift), in place.
void shifted_exp(float* logits, float shift, int64_t n);
void shifted_exp(double* logits, double shift, int64_t n);
void shifted_exp(Bf16* logits, float shift, int64_t n);

float to_float(Bf16 x);
Bf16 to_bf16(float x);

// Philox4x32-10 on the 64-bit counters first .. first + blocks - 1 with the upper half `high`: four words
// each.
void philox_blocks(uint64_t first, uint64_t high, std::array<uint32_t, 2> key, uint32_t* words,
                   int64_t blocks);
// out[i] = words[i] < threshold ? 0 : keep.
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, float* out, int64_t n);
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, double* out, int64_t n);
void select_at_least(const uint32_t* words, uint32_t threshold, double keep, Bf16* out, int64_t n);

}  // namespace tessera::ops::kernels
