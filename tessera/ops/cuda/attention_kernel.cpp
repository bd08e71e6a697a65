#include "tessera/ops/cuda/attention_kernel.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "tessera/core/environment.h"
#include "tessera/device/device.h"
#include "tessera/ops/cuda/cudnn_attention.h"
#include "tessera/ops/cuda/flash_attention.h"

namespace tessera::ops::cuda {
namespace {

// Returns cuDNN's attention if it should compute this call, or null.
CudnnAttention* cudnn_for(const at::Tensor& q, const VarlenCall& call) {
  return is_for_cudnn(q, call) && has_cudnn_attention(q.device()) ? cudnn_attention() : nullptr;
}

AttentionResult forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                        double scale) {
  return attend_by_cudnn_or(flash_attention(), cudnn_for(q, call), q, k, v, call, scale);
}

AttentionGradients backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionResult& result, const VarlenCall& call,
                            double scale) {
  return differentiate_by_cudnn_or(flash_attention(), cudnn_for(q, call), grad_out, q, k, v, result, call,
                                   scale);
}

}  // namespace

bool wants_cudnn() { return environment::get_flag("TESSERA_CUDNN").value_or(true); }

bool is_for_cudnn(const at::Tensor& q, const VarlenCall& call) {
  constexpr int64_t kLong = 4096, kMostPadding = 8;
  const int64_t head_dim = q.size(2), queries = call.longest(&SeenSpan::queries);
  const bool is_taken = (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
                        head_dim % 16 == 0 && head_dim >= 64 && head_dim <= 128;
  return is_taken && queries >= kLong && call.longest(&SeenSpan::keys) >= kLong &&
         std::ssize(call.spans) * queries <= kMostPadding * q.size(0) && wants_cudnn();
}

bool has_cudnn_attention(at::Device device) {
  return has_capability(device, 9, 0) && !has_capability(device, 11, 0);
}

bool has_sound_gradients(size_t cudnn_version, const VarlenCall& call) {
  constexpr size_t kMended = 92600;
  constexpr int64_t kTile = 128;
  if (cudnn_version >= kMended || call.is_causal()) return true;
  return std::none_of(call.spans.begin(), call.spans.end(), [](const SeenSpan& span) {
    const int64_t in_last_tile = span.keys % kTile;
    return in_last_tile > 0 && in_last_tile <= kTile / 2;
  });
}

AttentionResult attend_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                                   double scale) {
  if (cudnn != nullptr) {
    if (const auto made = cudnn->attend(q, k, v, call, scale)) return *made;
  }
  return otherwise.forward(q, k, v, call, scale);
}

AttentionGradients differentiate_by_cudnn_or(const VarlenKernel& otherwise, CudnnAttention* cudnn,
                                             const at::Tensor& grad_out, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v,
                                             const AttentionResult& result, const VarlenCall& call,
                                             double scale) {
  if (cudnn != nullptr && has_sound_gradients(cudnn->version(), call) &&
      !at::globalContext().deterministicAlgorithms()) {
    if (const auto made = cudnn->differentiate(grad_out, q, k, v, result, call, scale)) return *made;
  }
  return otherwise.backward(grad_out, q, k, v, result, call, scale);
}

const VarlenKernel& attention_kernel() {
  static constexpr VarlenKernel kKernel{forward, backward};
  return kKernel;
}

}  // namespace tessera::ops::cuda
