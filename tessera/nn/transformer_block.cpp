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
  const auto add_norm = [&](const std::string& name) {
    return name.empty() ? nullptr : register_module(name, make_norm(hidden, o.norm, dtype));
  };
  attention_norm = add_norm(o.attention_norm_name);
  attention_out_norm = add_norm(o.attention_out_norm_name);
  mlp_norm = add_norm(o.mlp_norm_name);
  mlp_out_norm = add_norm(o.mlp_out_norm_name);
}

ops::NormedResidual TransformerBlock::add_and_norm(const Norm* norm, const at::Tensor& x,
                                                   const std::optional<at::Tensor>& delta) const {
  // The norm runs in the product type of the attention's projections: products read its result in the forward
  // and, in the backward, the gradient of the delta that it adds.
  const ops::ProductScope products(attention->product_type());
  if (norm != nullptr) return norm->add_and_norm(x, delta);
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, residual};
}

at::Tensor TransformerBlock::finished(const at::Tensor& branch, const Norm* norm) const {
  const at::Tensor y = norm == nullptr ? branch : norm->forward(branch);
  return options_.branch_scale == 1.0 ? y : y * options_.branch_scale;
}

at::Tensor TransformerBlock::run_mlp(const ops::Activation& x, const SequenceContext& context) const {
  const at::Tensor y = mlp != nullptr ? mlp->forward(x) : sparse_mlp->forward(x, context);
  return finished(y, mlp_out_norm.get());
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const SequenceContext& context) {
  const auto [h, normed_x] = add_and_norm(attention_norm.get(), x, std::nullopt);
  const at::Tensor attended = finished(attention->forward(normed_x, context), attention_out_norm.get());
  if (options_.is_parallel) {
    const ops::Activation read = mlp_norm == nullptr ? normed_x : mlp_norm->add_and_norm(h).normed;
    return h + attended + run_mlp(read, context);
  }
  const auto [residual, normed] = add_and_norm(mlp_norm.get(), h, attended);
  return residual + run_mlp(normed, context);
}

}  // namespace tessera::nn
