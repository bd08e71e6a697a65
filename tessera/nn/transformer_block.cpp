#include "tessera/nn/transformer_block.h"

namespace tessera::nn {

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, int64_t layer, at::ScalarType dtype) {
  const int64_t hidden = o.attention.hidden_size;
  self_attn = register_module("self_attn", std::make_shared<Attention>(o.attention, layer, dtype));
  mlp = register_module("mlp", std::make_shared<MLP>(hidden, o.intermediate_size, o.mlp_bias, dtype));
  input_layernorm = register_module("input_layernorm", std::make_shared<RMSNorm>(hidden, o.norm_eps, dtype));
  post_attention_layernorm =
      register_module("post_attention_layernorm", std::make_shared<RMSNorm>(hidden, o.norm_eps, dtype));
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const SequenceContext& context) {
  const auto [h, normed_x] = input_layernorm->add_and_norm(x);
  const at::Tensor attended = self_attn->forward(normed_x, context);
  const auto [residual, normed] = post_attention_layernorm->add_and_norm(h, attended);
  return residual + mlp->forward(normed);
}

}  // namespace tessera::nn
