#include "tessera/ops/host.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/plain.h"

namespace tessera::ops {
namespace {

at::Tensor to_float(const at::Tensor& x) { return x.to(at::kFloat); }

// Attention is computed in float32 on widened copies of one layer's operands: LibTorch takes float16 many
// times as slowly.
AttentionResult attend_wide(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  AttentionResult result = host::attend_spans(to_float(q), to_float(k), to_float(v), spans, formula);
  result.out = result.out.to(q.scalar_type());
  return result;
}

AttentionGradients attend_wide_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const AttentionResult& result,
                                        const std::vector<AttentionSpan>& spans,
                                        const AttentionFormula& formula) {
  const AttentionGradients wide =
      host::attend_spans_backward(to_float(grad_out), to_float(q), to_float(k), to_float(v),
                                  {to_float(result.out), result.log_sum}, spans, formula);
  const auto narrow = [&](const at::Tensor& x) { return x.defined() ? x.to(q.scalar_type()) : x; };
  return {narrow(wide.q), narrow(wide.k), narrow(wide.v)};
}

}  // namespace

const Leaves& half_leaves() {
  static const Leaves leaves = [] {
    Leaves own = plain_leaves();
    own.multiply = host::multiply;
    own.linear = nullptr;
    own.lora_linear = nullptr;
    own.attend_spans = attend_wide;
    own.attend_spans_backward = attend_wide_backward;
    own.document_attention = nullptr;
    return own;
  }();
  return leaves;
}

}  // namespace tessera::ops
