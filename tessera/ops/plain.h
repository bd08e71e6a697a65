// The ops as formulas of LibTorch's operations, for any device: what the kernels stand for. The forwards are
// in the order in which Transformers has them, so that a model can be compared with it to the last bits.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/leaf.h"

// The leaves of leaf.h.
namespace tessera::ops::plain {

void multiply(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
              bool adds);
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
std::pair<at::Tensor, at::Tensor> lora_linear(const at::Tensor& x, const at::Tensor& weight,
                                              const std::optional<at::Tensor>& bias, const at::Tensor& a,
                                              const at::Tensor& b, double scaling, const at::Tensor& mask);

NormedRows rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);
at::Tensor rms_norm_again(const at::Tensor& residual, const at::Tensor& weight, const at::Tensor& inverse_rms,
                          double eps);
std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& grad_residual,
                                                    const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& inverse_rms, bool want_x,
                                                    bool want_weight);
void rope(const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, int direction,
          const at::Tensor& to);
at::Tensor activate_mlp(Nonlinearity f, const MlpInputs& inputs);
MlpInputs activate_mlp_backward(Nonlinearity f, const at::Tensor& grad, const MlpInputs& inputs,
                                bool want_gate, bool want_up);

AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);
AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula);
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula);
void write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v);
at::Tensor cached_attention(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                            const AttentionFormula& formula);

void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                   bool in_place, const LossFormula& formula);
at::Tensor sum_losses(const at::Tensor& losses);

void adamw(const std::vector<AdamWTensors>& all);
std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all);
void cast_into(const at::Tensor& to, const at::Tensor& from);
void read_only(const at::Tensor& x);
void draw(const at::Tensor& out, const Draw& what, const ElementNumbers& numbers);

}  // namespace tessera::ops::plain
