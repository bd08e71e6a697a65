#include "tessera/ops/plain.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {
namespace plain {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return at::linear(x, weight.to(x.scalar_type()), bias ? std::optional(bias->to(x.scalar_type())) : bias);
}

at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, double scaling) {
  return plain::linear(x, weight, bias) + at::linear(at::linear(x, a), b) * scaling;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(compute_type(x.scalar_type()));
  const at::Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps);
  return weight.to(x.scalar_type()) * normed.to(x.scalar_type());
}

at::Tensor apply_rope(const at::Tensor& x, const at::Tensor& cos_in, const at::Tensor& sin_in) {
  const auto both_halves = [&](const at::Tensor& angles) {
    return at::cat({angles, angles}, -1).unsqueeze(1).to(x.scalar_type());
  };
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * both_halves(cos_in) + turned * both_halves(sin_in);
}

at::Tensor activate_mlp(Nonlinearity f, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor y =
      f == Nonlinearity::Silu ? at::silu(gate) : at::gelu(gate, f == Nonlinearity::Gelu ? "none" : "tanh");
  return up.defined() ? y * up : y;
}

namespace {

// What the queries of a document of this length see: [length, length], or undefined where that is all, or all
// up to themselves.
at::Tensor mask_of(int64_t length, const AttentionFormula& formula, const at::Tensor& like) {
  if (formula.window == 0 || formula.window >= length) return {};
  const kernels::KeyBand band = key_band({0, length, 0, length, 0}, formula);
  const at::Tensor all = at::ones({length, length}, like.options().dtype(at::kBool));
  return all.triu(std::max(band.first, -length)).tril(std::min(band.last, length));
}

// The softmax in the type that is computed in. q, k, v: [heads, length, head_dim]
at::Tensor capped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionFormula& formula) {
  const at::ScalarType exact = compute_type(q.scalar_type());
  const int64_t length = q.size(1), group = q.size(0) / k.size(0);
  const auto all_heads = [&](const at::Tensor& x) { return x.to(exact).repeat_interleave(group, 0); };
  at::Tensor scores = at::matmul(q.to(exact), all_heads(k).transpose(1, 2)) * formula.scale;
  scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
  at::Tensor mask = mask_of(length, formula, q);
  if (!mask.defined() && formula.is_causal) {
    mask = at::ones({length, length}, q.options().dtype(at::kBool)).tril();
  }
  if (mask.defined()) {
    scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return at::matmul(at::softmax(scores, -1), all_heads(v)).to(q.scalar_type());
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula) {
  std::vector<at::Tensor> documents;
  for (const AttentionSpan& span : spans_of_documents(document_starts)) {
    const auto heads = [&](const at::Tensor& x) {
      return x.narrow(0, span.first_query, span.queries).transpose(0, 1);
    };
    at::Tensor result;
    if (formula.soft_cap > 0) {
      result = capped_attention(heads(q), heads(k), heads(v), formula);
    } else {
      const at::Tensor mask = mask_of(span.queries, formula, q);
      const bool is_causal = !mask.defined() && formula.is_causal && span.queries > 1;
      result = at::scaled_dot_product_attention(heads(q).unsqueeze(0), heads(k).unsqueeze(0),
                                                heads(v).unsqueeze(0),
                                                mask.defined() ? std::optional(mask) : std::nullopt, 0.0,
                                                is_causal, formula.scale, q.size(1) != k.size(1))
                   .squeeze(0);
    }
    documents.push_back(result.transpose(0, 1));
  }
  return documents.empty() ? at::empty_like(q) : at::cat(documents);
}

}  // namespace plain
}  // namespace tessera::ops
