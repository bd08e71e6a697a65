#include "tessera/nn/attention.h"

#include <cmath>

#include "tessera/ops/rope.h"

namespace tessera::nn {

Attention::Attention(const AttentionOptions& o, int64_t layer, at::ScalarType dtype)
    : head_dim_(o.head_dim), layer_(layer), core_(causal_attention()) {
  const int64_t q_size = o.num_heads * o.head_dim, kv_size = o.num_kv_heads * o.head_dim;
  q_proj = register_module("q_proj", std::make_shared<Linear>(o.hidden_size, q_size, o.qkv_bias, dtype));
  k_proj = register_module("k_proj", std::make_shared<Linear>(o.hidden_size, kv_size, o.qkv_bias, dtype));
  v_proj = register_module("v_proj", std::make_shared<Linear>(o.hidden_size, kv_size, o.qkv_bias, dtype));
  o_proj = register_module("o_proj", std::make_shared<Linear>(q_size, o.hidden_size, o.output_bias, dtype));
  if (o.qk_norm) {
    q_norm = register_module("q_norm", std::make_shared<RMSNorm>(o.head_dim, o.norm_eps, dtype));
    k_norm = register_module("k_norm", std::make_shared<RMSNorm>(o.head_dim, o.norm_eps, dtype));
  }
}

CachedHeads Attention::cached_heads() const { return {k_proj->out_features() / head_dim_, head_dim_}; }

at::Tensor Attention::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) { return run_heads(in, context); });
}

at::Tensor Attention::run_heads(const ops::Activation& x, const SequenceContext& context) const {
  const auto projected = forward_all(x, {q_proj.get(), k_proj.get(), v_proj.get()});
  const auto in_heads = [this](const at::Tensor& y) {
    return y.dim() == 3 ? y : y.view({y.size(0), y.size(1) / head_dim_, head_dim_});
  };
  at::Tensor q = projected[0], k = projected[1];
  if (q_norm != nullptr) {
    q = q_norm->forward(in_heads(q));
    k = k_norm->forward(in_heads(k));
  }
  q = in_heads(ops::apply_rope_(q, context.cos, context.sin));
  k = in_heads(ops::apply_rope_(k, context.cos, context.sin));
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  const at::Tensor out = core_->attend(q, k, in_heads(projected[2]), context, layer_, scale);
  return o_proj->forward(out.view({out.size(0), out.size(1) * head_dim_}));
}

}  // namespace tessera::nn
