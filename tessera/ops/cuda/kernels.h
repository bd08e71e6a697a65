// The table of Tessera's own CUDA kernels, which libtessera_cuda.so gives to the program; nvcc makes that
// library of the .cu files beside this header. C++17, free of CUDA's and LibTorch's headers: the library and
// the program are compiled apart and may be of different ages, so every change to this table changes
// kCudaKernelsVersion.
//
// [Note: rules of the table]
// - Pointers are to memory of the current device, dense and row-major, but for structs of options, which the
//   host reads during the call. Any alignment that fits the element type works; 16 bytes are fast.
// - A call enqueues on `stream` (a cudaStream_t; null is the default one), waits for nothing, allocates
//   nothing, and returns 0, or the cudaError_t of a launch that failed; error_text() has words for it.
//   A combination of types that an entry does not name is cudaErrorInvalidValue (1).
// - Sizes are in elements, >= 0; with no element nothing is enqueued, except where a result has to be zero.
// - Sums are taken in float32, unless said otherwise, in an order that follows from the sizes, the types and
//   whether memory is aligned to 16 bytes: a call gives the same bits every time, whatever the device is busy
//   with.
// - Stored results are rounded to nearest even, NaN stays NaN.
// - "may be x" of a result: it may be the same memory as x. Results overlap inputs in no other way.
// - A workspace is memory of the device that holds nothing between calls, 16-byte aligned, of the bytes that
//   the function *_workspace gives; it may be freed, or used again, in the order of the stream.
#pragma once

#include <cstdint>

namespace tessera::ops::cuda {

inline constexpr int32_t kCudaKernelsVersion = 4;

// Element types. An entry that has a `type` takes F32 and BF16, unless it says more.
enum class Type : int32_t { F32 = 0, BF16 = 1, F16 = 2, F64 = 3 };

// The functions of ops::Nonlinearity, in its order.
enum class Activate : int32_t { Silu = 0, Gelu = 1, GeluTanh = 2 };

// The numbers of a CounterRng (core/rng.h): its key(), and the step.
struct RandomKey {
  uint32_t key[2];
  uint64_t step;
};

// The elements of a random tensor that a call makes: rows of `width` elements with successive numbers. Row r
// begins with the number row_numbers[r] (on the device) if row_numbers is not null, else with first + r *
// row_stride.
struct RandomElements {
  int64_t rows, width;
  uint64_t first, row_stride;
  const int64_t* row_numbers;
};

// The tensors of one update of Adam with decoupled weight decay, of n elements each.
struct AdamWTensors {
  void* value;           // value_type: F32 or BF16
  const void* gradient;  // gradient_type: F32 or BF16
  void *mean, *square;   // state_type: F32 or BF16
  Type value_type, gradient_type, state_type;
  int64_t n;
};

// The factors of one update, as in ops::kernels::AdamWFactors.
struct AdamWFactors {
  double gradient_scale, beta1, beta2, epsilon;
  double decay;              // 1 - learning rate * weight decay
  double step_size;          // learning rate / (1 - beta1^t)
  double square_correction;  // 1 / sqrt(1 - beta2^t)
};

// Stochastic rounding of what an update stores in BF16: 16 random bits are added to the lower 16 bits of a
// float32 result, and the lower half is dropped, so that the result is rounded up with the probability that
// its lower bits say; infinity and NaN stay. Element i has the number k = first + i / width * row_stride + i
// % width (width >= 1) and takes the 16 bits k % 8 (the low half of word 0, its high half, the low half of
// word 1, ...) of CounterRng::words(k / 8).
struct AdamWRounding {
  RandomKey value, mean, square;  // one stream for each tensor that is rounded
  uint64_t first, width, row_stride;
};

// Terms that the loss of a position has beside the cross entropy, as in ops::LossTerms, and the part of the
// vocabulary that the logits are of.
struct LossOptions {
  double label_smoothing, z_loss_coef;
  int64_t vocab_size;   // tokens of all parts, over which smoothing takes its mean
  int64_t first_token;  // token of column 0; 0 without parts
  int64_t ignore_label;
};

// The place where an entry leaves the scale for products in e4m3 of a result that it makes, in BF16 alone:
// the scale that e4m3_scale gives for the result, which must have elements, without a pass over it. Null: the
// scale is not asked for.
struct ScaleResult {
  float* scale;     // one number on the device
  void* workspace;  // kScaleWorkspace bytes
};
inline constexpr int64_t kScaleWorkspace = 8192;

struct CudaKernels {
  int32_t version;  // kCudaKernelsVersion of the library; always the first member
  int32_t size;     // sizeof(CudaKernels) of the library

  // Returns words for an entry's error, which the library owns; never null.
  const char* (*error_text)(int32_t error);

  // Computes residual = x + delta, rounded to `type` (x itself without a delta); inverse_rms = 1 /
  // sqrt(mean(residual^2) + eps) of every row; y = weight * (residual * inverse_rms), the product in
  // parentheses rounded to `type`. x, delta, residual, y: [rows, width] `type`; delta null: residual is not
  // written, and may be null. weight: [width] weight_type (F32 or BF16); inverse_rms: [rows] F32. residual
  // may be x or delta.
  int32_t (*rms_norm)(Type type, Type weight_type, const void* x, const void* delta, const void* weight,
                      double eps, void* residual, void* y, float* inverse_rms, int64_t rows, int64_t width,
                      const ScaleResult* y_scale, void* stream);
  // Computes the same y from the residual and its inverse_rms.
  int32_t (*rms_norm_scale)(Type type, Type weight_type, const void* residual, const void* weight,
                            const float* inverse_rms, void* y, int64_t rows, int64_t width, void* stream);
  // Computes grad_x = grad_residual + inverse_rms (grad_y weight - x dot(grad_y weight, x) inverse_rms^2 /
  // width), unless grad_x is null; grad_residual may be null. grad_weight: [width] weight_type, the sum over
  // the rows of grad_y x inverse_rms, written, not added to; or null. grad_x may be grad_y or grad_residual.
  // The sums for grad_weight are float32, over pieces of rows and then over the pieces.
  int32_t (*rms_norm_backward)(Type type, Type weight_type, const void* grad_y, const void* x,
                               const void* weight, const float* inverse_rms, const void* grad_residual,
                               void* grad_x, void* grad_weight, int64_t rows, int64_t width, void* workspace,
                               const ScaleResult* x_scale, void* stream);
  // Returns the bytes that are needed with grad_weight; without it, none are.
  int64_t (*rms_norm_backward_workspace)(int64_t rows, int64_t width);

  // Computes y = f(gate) * up, with f(gate) rounded to `type` first; y = f(gate) if up is null. n elements
  // each. y may be gate or up.
  int32_t (*activate)(Type type, Activate f, const void* gate, const void* up, void* y, int64_t n,
                      const ScaleResult* y_scale, void* stream);
  // Computes grad_gate = grad_y up f'(gate) and grad_up = grad_y f(gate); either may be null, and has no
  // scale then. Each may be one of grad_y, gate, up.
  int32_t (*activate_backward)(Type type, Activate f, const void* grad_y, const void* gate, const void* up,
                               void* grad_gate, void* grad_up, int64_t n, const ScaleResult* gate_scale,
                               const ScaleResult* up_scale, void* stream);

  // Rotates the pairs (x[i], x[i + half]) of every head by the angles of its token; direction: 1, or -1 to
  // rotate back, which is the gradient. x, y: [tokens, heads, 2 half] `type`, y may be x; cos, sin: [tokens,
  // half] F32.
  int32_t (*rope)(Type type, const void* x, const float* cos, const float* sin, int32_t direction, void* y,
                  int64_t tokens, int64_t heads, int64_t half, const ScaleResult* y_scale, void* stream);

  // Computes the losses of rows of logits over the whole vocabulary, in one read; with writes_gradient, one
  // more read, from the cache, replaces the logits by the gradients of the sum of the losses. logits: [rows,
  // width] `type`; labels: [rows], each a column, or ignore_label: that row's loss and gradients are 0.
  // losses: [rows] F64. A label that is neither is taken for one of another part: nothing is subtracted.
  int32_t (*cross_entropy)(Type type, void* logits, const int64_t* labels, double* losses, int64_t rows,
                           int64_t width, const LossOptions* options, int32_t writes_gradient, void* stream);
  // The two halves of cross_entropy for logits whose columns are a part of the vocabulary. The first writes
  // sums: [3, rows] F32, the logarithm of the sum of exponentials (-infinity for width 0), the label's logit
  // (0 if another part has it) and the sum of logits. Between the two the caller combines the sums of all
  // parts.
  int32_t (*cross_entropy_sums)(Type type, const void* logits, const int64_t* labels, float* sums,
                                int64_t rows, int64_t width, const LossOptions* options, void* stream);
  int32_t (*cross_entropy_finish)(Type type, void* logits, const int64_t* labels, const float* sums,
                                  double* losses, int64_t rows, int64_t width, const LossOptions* options,
                                  int32_t writes_gradient, void* stream);

  // Updates n elements in float32. For g = gradient * gradient_scale * *device_scale: mean += (1 - beta1) (g
  // - mean); square = beta2 square + (1 - beta2) g^2; value = decay value - step_size mean / (sqrt(square)
  // square_correction + epsilon), by mean and square before they are rounded. device_scale: F32 on the device
  // (the clip factor), or null for 1; NaN: nothing is written. rounding: null for nearest even; else results
  // that are stored as BF16 are rounded by it.
  int32_t (*adamw)(const AdamWTensors* tensors, const AdamWFactors* factors, const float* device_scale,
                   const AdamWRounding* rounding, void* stream);

  // Computes *sum = the sum of x^2, in float64, by pieces of 65,536 elements. x: n of F32, BF16 or F64.
  int32_t (*sum_of_squares)(Type type, const void* x, int64_t n, double* sum, void* workspace, void* stream);
  int64_t (*sum_of_squares_workspace)(int64_t n);
  // Computes *sum = the sum of n doubles, always in one order.
  int32_t (*sum)(const double* x, int64_t n, double* sum, void* stream);

  // Computes to = from, n elements, from F32, BF16 and F16 to any of them.
  int32_t (*cast)(Type from_type, const void* from, Type to_type, void* to, int64_t n, void* stream);

  // Computes *scale = max(|x|, 1e-12) / 448 over all of x, by which to_e4m3 divides; NaN if an element is. x:
  // n >= 1.
  int32_t (*e4m3_scale)(Type type, const void* x, int64_t n, float* scale, void* workspace, void* stream);
  int64_t (*e4m3_scale_workspace)(int64_t n);
  // Computes codes[r, c] = x[r, c] * (1 / *scale) as e4m3, to nearest even and within 448; NaN stays NaN. x:
  // [rows, width]; codes: [rows, stride], 16-byte aligned, zero from `width` on; stride >= width, a multiple
  // of 16.
  int32_t (*to_e4m3)(Type type, const void* x, const float* scale, void* codes, int64_t rows, int64_t width,
                     int64_t stride, void* stream);
  // Computes the same codes of x^T: [width, stride], zero from `rows` on; stride >= rows.
  int32_t (*to_e4m3_transposed)(Type type, const void* x, const float* scale, void* codes, int64_t rows,
                                int64_t width, int64_t stride, void* stream);

  // Computes out[r, c] = 0 if word i % 4 of CounterRng::words(i / 4) is less than p 2^32, else 1 / (1 - p),
  // for the element's number i; 0 <= p < 1. out: [rows, width] F32, BF16 or F64. The values are those of
  // ops::dropout_mask.
  int32_t (*dropout_mask)(Type type, double p, const RandomKey* key, const RandomElements* elements,
                          void* out, void* stream);
  // Computes out[r, c] = (word + 0.5) 2^-31 - 1 with the same words. The values are those of
  // ops::uniform_noise.
  int32_t (*uniform_noise)(Type type, const RandomKey* key, const RandomElements* elements, void* out,
                           void* stream);

  // Expands blocks of ggml's type `ggml_type` (any io::GgmlType but F32) as io::dequantize_ggml does, to F32,
  // BF16 or F16. blocks: at any address.
  int32_t (*dequantize_ggml)(uint32_t ggml_type, const void* blocks, int64_t num_blocks, Type to_type,
                             void* to, void* stream);
  // Expands NF4 of Dettmers et al., "QLoRA", 2023, appendix E: value = level(code) * scales[i / block].
  // codes: two a byte, the first in the high half; scales: F32, one for each `block` elements (even, > 0).
  // to: n of F32, BF16 or F16.
  int32_t (*dequantize_nf4)(const void* codes, const float* scales, int64_t block, Type to_type, void* to,
                            int64_t n, void* stream);
};

// The type and name of the one symbol that the library exports: a function that returns its table, which
// lives as long as the library.
using CudaKernelsFunction = const CudaKernels* (*)();
inline constexpr char kCudaKernelsSymbol[] = "tessera_cuda_kernels";

}  // namespace tessera::ops::cuda
