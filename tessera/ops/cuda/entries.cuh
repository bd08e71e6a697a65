// The entries of the table (kernels.h), each defined in the .cu file of its family.
#pragma once

#include "tessera/ops/cuda/kernels.h"

namespace tessera::ops::cuda {

int32_t rms_norm(Type type, Type weight_type, const void* x, const void* delta, const void* weight,
                 double eps, void* residual, void* y, float* inverse_rms, int64_t rows, int64_t width,
                 const ScaleResult* y_scale, void* stream);
int32_t rms_norm_scale(Type type, Type weight_type, const void* residual, const void* weight,
                       const float* inverse_rms, void* y, int64_t rows, int64_t width, void* stream);
int32_t rms_norm_backward(Type type, Type weight_type, const void* grad_y, const void* x, const void* weight,
                          const float* inverse_rms, const void* grad_residual, void* grad_x,
                          void* grad_weight, int64_t rows, int64_t width, void* workspace,
                          const ScaleResult* x_scale, void* stream);
int64_t rms_norm_backward_workspace(int64_t rows, int64_t width);
int32_t activate(Type type, Activate f, const void* gate, const void* up, void* y, int64_t n,
                 const ScaleResult* y_scale, void* stream);
int32_t activate_backward(Type type, Activate f, const void* grad_y, const void* gate, const void* up,
                          void* grad_gate, void* grad_up, int64_t n, const ScaleResult* gate_scale,
                          const ScaleResult* up_scale, void* stream);
int32_t rope(Type type, const void* x, const float* cos, const float* sin, int32_t direction, void* y,
             int64_t tokens, int64_t heads, int64_t half, const ScaleResult* y_scale, void* stream);
int32_t cross_entropy(Type type, void* logits, const int64_t* labels, double* losses, int64_t rows,
                      int64_t width, const LossOptions* options, int32_t writes_gradient, void* stream);
int32_t cross_entropy_sums(Type type, const void* logits, const int64_t* labels, float* sums, int64_t rows,
                           int64_t width, const LossOptions* options, void* stream);
int32_t cross_entropy_finish(Type type, void* logits, const int64_t* labels, const float* sums,
                             double* losses, int64_t rows, int64_t width, const LossOptions* options,
                             int32_t writes_gradient, void* stream);
int32_t adamw(const AdamWTensors* tensors, const AdamWFactors* factors, const float* device_scale,
              const AdamWRounding* rounding, void* stream);
int32_t sum_of_squares(Type type, const void* x, int64_t n, double* sum, void* workspace, void* stream);
int64_t sum_of_squares_workspace(int64_t n);
int32_t sum(const double* x, int64_t n, double* sum, void* stream);
int32_t cast(Type from_type, const void* from, Type to_type, void* to, int64_t n, void* stream);
int32_t e4m3_scale(Type type, const void* x, int64_t n, float* scale, void* workspace, void* stream);
int64_t e4m3_scale_workspace(int64_t n);
int32_t to_e4m3(Type type, const void* x, const float* scale, void* codes, int64_t rows, int64_t width,
                int64_t stride, void* stream);
int32_t to_e4m3_transposed(Type type, const void* x, const float* scale, void* codes, int64_t rows,
                           int64_t width, int64_t stride, void* stream);
int32_t dropout_mask(Type type, double p, const RandomKey* key, const RandomElements* elements, void* out,
                     void* stream);
int32_t uniform_noise(Type type, const RandomKey* key, const RandomElements* elements, void* out,
                      void* stream);
int32_t dequantize_ggml(uint32_t ggml_type, const void* blocks, int64_t num_blocks, Type to_type, void* to,
                        void* stream);
int32_t dequantize_nf4(const void* codes, const float* scales, int64_t block, Type to_type, void* to,
                       int64_t n, void* stream);

}  // namespace tessera::ops::cuda
