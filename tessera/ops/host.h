// The leaves of the ops (leaf.h) on Tessera's kernels for the processor. Each stands in the source of its op.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/leaf.h"

namespace tessera::ops::host {

void multiply(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
              bool adds);
std::vector<at::Tensor> small_linears(const at::Tensor& x, const std::vector<LinearOperands>& layers);

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

}  // namespace tessera::ops::host
