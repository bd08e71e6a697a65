#include "tessera/nn/transformer_block.h"

namespace tessera::nn {

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, int64_t layer, at::ScalarType dtype)
    : options_(o) {
  const int64_t hidden = o.attention.hidden_size;
  attention = register_module(o.attention_name, std::make_shared<Attention>(o.attention, layer, dtype));
  if (o.sparse) {
    sparse_mlp = register_module(o.mlp_name, std::make_shared<SparseMLP>(*o.sparse, dtype));
  } else {
    mlp = register_module(o.mlp_name, std::make_shared<MLP>(o.mlp, dtype));
  }
  attention_norm = register_module(o.attention_norm_name, make_norm(hidden, o.norm, dtype));
  mlp_norm = register_module(o.mlp_norm_name, make_norm(hidden, o.norm, dtype));
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const SequenceContext& context) {
  // The norm runs in the product type of the attention's projections: products read its result in the forward
  // and, in the backward, the gradient of the delta that it adds.
  const auto norm = [this](const Norm& of, const at::Tensor& sum, const std::optional<at::Tensor>& delta) {
    const ops::ProductScope products(attention->product_type());
    return of.add_and_norm(sum, delta);
  };
  const auto [h, normed_x] = norm(*attention_norm, x, std::nullopt);
  const at::Tensor attended = attention->forward(normed_x, context);
  const auto [residual, normed] = norm(*mlp_norm, h, attended);
  return residual + (mlp != nullptr ? mlp->forward(normed) : sparse_mlp->forward(normed, context));
}

}  // namespace tessera::nn
