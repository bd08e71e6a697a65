#include "tessera/ops/plain.h"

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

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, double scale) {
  std::vector<at::Tensor> documents;
  for (size_t i = 0; i + 1 < document_starts.size(); ++i) {
    const int64_t first = document_starts[i], length = document_starts[i + 1] - first;
    if (length == 0) continue;
    const auto heads = [&](const at::Tensor& x) {
      return x.narrow(0, first, length).transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor result = at::scaled_dot_product_attention(heads(q), heads(k), heads(v), {}, 0.0,
                                                               length > 1, scale, q.size(1) != k.size(1));
    documents.push_back(result.squeeze(0).transpose(0, 1));
  }
  return documents.empty() ? at::empty_like(q) : at::cat(documents);
}

}  // namespace plain
}  // namespace tessera::ops
