// The choice of the kernel that computes attention on a GPU.
#pragma once

#include <cstddef>

#include <c10/core/Device.h>

#include "tessera/ops/cuda/varlen.h"

namespace tessera::ops::cuda {

class CudnnAttention;

// Tells whether TESSERA_CUDNN leaves cuDNN on.
bool wants_cudnn();
// Tells whether cuDNN should compute a call, if wants_cudnn(): bfloat16 and float16, heads of 64 to 128 in
// steps of 16, documents of 4,096 and more tokens, and not so many short ones beside them that most of the
// kernel's blocks would have nothing to do.
bool is_for_cudnn(const at::Tensor& q, const VarlenCall& call);
// Tells whether the device has compute capability 9.x or 10.x, for which cuDNN has kernels of their own.
bool has_cudnn_attention(at::Device device);

// Tells whether a version's gradients of a call can be trusted. Before 9.26, if the second half of a
// document's last tile of 128 keys has no keys and no causal bound hides it, cuDNN's kernel for Hopper takes
// that half for keys, and rows whose log_sum is below -88 become NaN.
bool has_sound_gradients(size_t cudnn_version, const VarlenCall& call);

// Compute by cuDNN, or by `otherwise` if `cudnn` is null or refuses. Gradients come from `otherwise` too if
// cuDNN's are not sound, or if at::Context::deterministicAlgorithms() asks for the same bits each time.
AttentionResult attend_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                                   double scale);
AttentionGradients differentiate_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn,
                                             const at::Tensor& grad_out, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const AttentionResult& result, const VarlenCall& call,
                                             double scale);

// Returns the kernel for tensors of a CUDA device for which flash_computes() holds: cuDNN for calls and
// devices that are its, else flash attention 2.
const VarlenKernel& attention_kernel();

}  // namespace tessera::ops::cuda
