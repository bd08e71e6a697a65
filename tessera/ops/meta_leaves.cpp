// The leaves of tensors without memory: they make results of the right shapes and compute nothing, as the
// host's kernels would with the same operands. Memory that is counted on the meta device is then that of a
// run.
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/device/memory_scope.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace meta {
namespace {

at::Tensor like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

void multiply(const at::Tensor&, const at::Tensor&, const at::Tensor&, const MoreFactors&, bool) {}
void multiply_e4m3(const at::Tensor&, const E4m3Matrix&, const E4m3Matrix&, bool) {}

NormedRows rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor&, double) {
  NormedRows result;
  result.residual = delta.defined() ? like(x) : x;
  result.y = like(x);
  result.inverse_rms = at::empty({x.numel() / x.size(-1)}, x.options().dtype(compute_type(x.scalar_type())));
  return result;
}
at::Tensor rms_norm_again(const at::Tensor& residual, const at::Tensor&, const at::Tensor&, double) {
  return like(residual);
}
std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor& x,
                                                    const at::Tensor& weight, const at::Tensor&, bool want_x,
                                                    bool want_weight) {
  std::pair<at::Tensor, at::Tensor> gradients;
  if (want_x) gradients.first = like(x);
  const MemoryScope memory(MemoryCategory::Gradients);
  if (want_weight) gradients.second = like(weight);
  return gradients;
}

void rope(const at::Tensor&, const at::Tensor&, const at::Tensor&, const RopeForm&, int, const at::Tensor&) {}
at::Tensor activate_mlp(Nonlinearity, const MlpInputs& inputs) { return like(inputs.gate); }
MlpInputs activate_mlp_backward(Nonlinearity, const at::Tensor&, const MlpInputs& inputs, bool want_gate,
                                bool want_up) {
  return {want_gate ? like(inputs.gate) : at::Tensor(), want_up ? like(inputs.up) : at::Tensor()};
}

AttentionResult attend_spans(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                             const std::vector<AttentionSpan>&, const AttentionFormula&) {
  return {like(q), at::empty({q.size(0), q.size(1), 1}, q.options().dtype(compute_type(q.scalar_type())))};
}
AttentionGradients attend_spans_backward(const at::Tensor&, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult&,
                                         const std::vector<AttentionSpan>&, const AttentionFormula&) {
  // Each head of a long span has its own sums on the way if several heads share keys.
  const auto options = q.options().dtype(compute_type(q.scalar_type()));
  const bool has_shares = q.size(1) > k.size(1);
  const at::Tensor shares = at::empty({has_shares ? 2 * k.size(0) : 0, q.size(1), q.size(2)}, options);
  return {like(q), like(k), like(v)};
}

void cross_entropy(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, const LossFormula&) {}
at::Tensor sum_losses(const at::Tensor& losses) { return at::empty({}, losses.options()); }
void adamw(const std::vector<AdamWTensors>&, const at::Tensor&) {}
std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& tensor : all) sums.push_back(at::empty({}, tensor.options().dtype(at::kDouble)));
  return sums;
}
void cast_into(const at::Tensor&, const at::Tensor&) {}
void read_only(const at::Tensor&) {}
void draw(const at::Tensor&, const Draw&, const ElementNumbers&) {}
void expand_ggml(const at::Tensor&, const at::Tensor&, int64_t, uint32_t) {}

}  // namespace
}  // namespace meta

const Leaves& meta_leaves() {
  static const Leaves kLeaves = [] {
    Leaves table = plain_leaves();
    table.multiply = meta::multiply;
    table.multiply_e4m3 = meta::multiply_e4m3;
    table.linear = nullptr;
    table.lora_linear = nullptr;
    table.rms_norm = meta::rms_norm;
    table.rms_norm_again = meta::rms_norm_again;
    table.rms_norm_backward = meta::rms_norm_backward;
    table.rope = meta::rope;
    table.activate_mlp = meta::activate_mlp;
    table.activate_mlp_backward = meta::activate_mlp_backward;
    table.attend_spans = meta::attend_spans;
    table.attend_spans_backward = meta::attend_spans_backward;
    table.document_attention = nullptr;
    table.cross_entropy = meta::cross_entropy;
    table.sum_losses = meta::sum_losses;
    table.adamw = meta::adamw;
    table.sums_of_squares = meta::sums_of_squares;
    table.cast_into = meta::cast_into;
    table.read_only = meta::read_only;
    table.draw = meta::draw;
    table.expand_ggml = meta::expand_ggml;
    return table;
  }();
  return kLeaves;
}

}  // namespace tessera::ops
