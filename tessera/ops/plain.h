// The ops as formulas of LibTorch's operations, for any device: what the kernels stand for. The forwards are
// in the order in which Transformers has them, so that a model can be compared with it to the last bits.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention.h"
#include "tessera/ops/kernel_choice.h"
#include "tessera/ops/mlp_activation.h"

// Arguments and results as of the op of the same name.
namespace tessera::ops::plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
// Also the adapter's inner product, x a^T. mask: undefined for none.
std::pair<at::Tensor, at::Tensor> lora_linear(const at::Tensor& x, const at::Tensor& weight,
                                              const std::optional<at::Tensor>& bias, const at::Tensor& a,
                                              const at::Tensor& b, double scaling, const at::Tensor& mask);

// 1 / sqrt(mean(x^2) + eps) of every row: [..., 1] in compute_type(). And the norm with it.
at::Tensor inverse_rms(const at::Tensor& x, double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& inverse_rms);
// Gradients of x, with grad_residual added where that is defined, and of the weight; undefined where not
// wanted.
std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& grad_residual,
                                                    const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& inverse_rms, bool want_x,
                                                    bool want_weight);

at::Tensor apply_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
at::Tensor activate_mlp(Nonlinearity f, const at::Tensor& gate, const at::Tensor& up);
AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);
AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula);
// Differentiable by autograd.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula);

}  // namespace tessera::ops::plain
