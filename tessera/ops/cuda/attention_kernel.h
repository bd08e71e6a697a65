// Which kernel computes attention on a GPU.
#pragma once

#include <cstddef>

#include <c10/core/Device.h>

#include "tessera/ops/cuda/varlen.h"

namespace tessera::ops::cuda {

class CudnnAttention;

// Whether TESSERA_CUDNN leaves cuDNN on.
bool wants_cudnn();
// Whether a call is cuDNN's, if wants_cudnn(): bfloat16 and float16, heads of 64 to 128 in steps of 16,
// documents of 4,096 and more tokens, and not so many short ones beside them that most of the kernel's blocks
// have nothing to do.
bool is_for_cudnn(const at::Tensor& q, const VarlenCall& call);
// Compute capability 9.x and 10.x, for which cuDNN has kernels of their own.
bool has_cudnn_attention(at::Device device);

// Whether a version's gradients of a call can be trusted. Before 9.26 its kernel for Hopper takes the second
// half of a tile of 128 keys for keys where none of a document's lie in it and no causal bound hides it, and
// rows whose log_sum is below -88 become NaN (pytorch/pytorch#196678).
bool has_sound_gradients(size_t cudnn_version, const VarlenCall& call);

// By cuDNN, or by `otherwise` where `cudnn` is null or refuses. Gradients are the other's too where cuDNN's
// are not sound, or where at::Context::deterministicAlgorithms() asks for the same bits each time.
AttentionResult attend_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                                   double scale);
AttentionGradients differentiate_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn,
                                             const at::Tensor& grad_out, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const AttentionResult& result, const VarlenCall& call,
                                             double scale);

// For tensors of a CUDA device that flash_computes(): cuDNN where the call and the device are its, else flash
// attention 2.
const VarlenKernel& attention_kernel();

}  // namespace tessera::ops::cuda
