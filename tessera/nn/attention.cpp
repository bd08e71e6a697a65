#include "tessera/nn/attention.h"

#include <cmath>

#include "tessera/nn/kv_cache.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/rope.h"

namespace tessera::nn {

Attention::Attention(const AttentionOptions& o, int64_t layer, at::ScalarType dtype)
    : options_(o), layer_(layer) {
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

at::Tensor Attention::forward(const ops::Activation& x, const SequenceContext& context) {
  const int64_t tokens = x.value().size(0);
  const auto projected = forward_all(x, {q_proj.get(), k_proj.get(), v_proj.get()});
  const auto in_heads = [&](const at::Tensor& x, int64_t heads) {
    return x.view({tokens, heads, options_.head_dim});
  };
  at::Tensor q = projected[0], k = projected[1];
  if (options_.qk_norm) {
    q = q_norm->forward(in_heads(q, options_.num_heads));
    k = k_norm->forward(in_heads(k, options_.num_kv_heads));
  }
  q = in_heads(ops::apply_rope_(q, context.cos, context.sin), options_.num_heads);
  k = in_heads(ops::apply_rope_(k, context.cos, context.sin), options_.num_kv_heads);
  const at::Tensor v = in_heads(projected[2], options_.num_kv_heads);

  const double scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
  at::Tensor out;
  if (context.cache != nullptr) {
    out = context.cache->attend(layer_, q, k, v, scale);
  } else {
    out = ops::document_attention(q, k, v, context.document_starts, scale);
  }
  return o_proj->forward(out.view({tokens, options_.num_heads * options_.head_dim}));
}

}  // namespace tessera::nn
