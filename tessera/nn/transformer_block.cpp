#include "tessera/nn/transformer_block.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/random_scope.h"

namespace tessera::nn {
namespace {

// Tells whether the module, or an adapter in it, draws dropout masks.
bool drops(const torch::nn::Module& module) {
  const auto all = module.modules(/*include_self=*/false);
  return std::ranges::any_of(all, [](const auto& child) {
    if (const auto* const dropout = dynamic_cast<const Dropout*>(child.get())) return dropout->drops();
    if (const auto* const dropout = dynamic_cast<const AttentionDropout*>(child.get()))
      return dropout->drops();
    const auto* const linear = dynamic_cast<const Linear*>(child.get());
    return linear != nullptr && linear->adapter() != nullptr && linear->adapter()->drops();
  });
}

}  // namespace

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, int64_t layer, at::ScalarType dtype)
    : options_(o) {
  const int64_t hidden = o.attention.hidden_size;
  if (o.delta_net) {
    delta_net =
        register_module(o.attention_name, std::make_shared<GatedDeltaNet>(*o.delta_net, layer, dtype));
  } else if (o.convolution) {
    convolution =
        register_module(o.attention_name, std::make_shared<GatedConvolution>(*o.convolution, layer, dtype));
  } else {
    attention =
        register_below(*this, o.attention_name, std::make_shared<Attention>(o.attention, layer, dtype));
  }
  if (o.sparse) {
    sparse_mlp = register_module(o.beside ? o.beside->sparse_name : o.mlp_name,
                                 std::make_shared<SparseMLP>(*o.sparse, dtype));
    if (o.sparse->is_beside) sparse_mlp->register_in(*this);
  }
  if (!o.sparse || o.beside) {
    mlp = register_below(*this, o.mlp_name, std::make_shared<MLP>(o.mlp, dtype));
    if (o.mlp.is_up_beside) register_below(*this, o.mlp.up, mlp->up_proj);
    if (o.mlp.is_down_beside) register_below(*this, o.mlp.down, mlp->down_proj);
  }
  const auto add_norm = [&](const std::string& name) {
    return name.empty() ? nullptr : register_below(*this, name, make_norm(hidden, o.norm, dtype));
  };
  attention_norm = add_norm(o.attention_norm_name);
  attention_out_norm = add_norm(o.attention_out_norm_name);
  mlp_norm = add_norm(o.mlp_norm_name);
  mlp_out_norm = add_norm(o.mlp_out_norm_name);
  if (o.beside) {
    dense_out_norm = add_norm(o.beside->mlp_out_norm_name);
    sparse_out_norm = add_norm(o.beside->sparse_out_norm_name);
  }
  if (o.layer_inputs)
    layer_input = register_module("layer_input", std::make_shared<LayerInput>(*this, *o.layer_inputs, dtype));
  const std::string site = "block." + std::to_string(layer) + ".";
  mixer_dropout = add_dropout(*this, "mixer_dropout", o.mixer_dropout, site + "mixer_dropout");
  mlp_dropout = add_dropout(*this, "mlp_dropout", o.mlp_dropout,
                            site + (o.drops_sum ? "mixer_dropout" : "mlp_dropout"));
  mlp_hidden_dropout =
      add_dropout(*this, "mlp_hidden_dropout", o.mlp_hidden_dropout, site + "mlp_hidden_dropout");
  if (mlp != nullptr) mlp->set_hidden_dropout(mlp_hidden_dropout);
  if (!o.result_scale_name.empty()) {
    result_scale = register_below(*this, o.result_scale_name,
                                  std::make_shared<BareValues>(1, InitialValue::ones(), dtype));
    result_scale->weight.set_requires_grad(false);
  }
  if (!o.cross_attention) return;
  cross_attention = register_below(*this, o.cross_attention_name,
                                   std::make_shared<CrossAttention>(*o.cross_attention, layer + 1, dtype));
  cross_norm = add_norm(o.cross_norm_name);
  cross_dropout = add_dropout(*this, "cross_dropout", o.mixer_dropout, site + "cross_dropout");
}

ops::NormedResidual TransformerBlock::add_and_norm(const Norm* norm, const at::Tensor& x,
                                                   const std::optional<at::Tensor>& delta) const {
  // The norm runs in the product type of the mixer's projections: products read its result in the forward
  // and, in the backward, the gradient of the delta that it adds.
  const ops::ProductScope products(mixer_output().product_type());
  if (norm != nullptr) return norm->add_and_norm(x, delta);
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, residual};
}

at::Tensor TransformerBlock::finished(const at::Tensor& branch, const Norm* norm,
                                      const Dropout* dropout) const {
  const at::Tensor normed = norm == nullptr ? branch : norm->forward(branch);
  const at::Tensor y = dropout == nullptr ? normed : dropout->forward(normed);
  return options_.branch_scale == 1.0 ? y : y * options_.branch_scale;
}

at::Tensor TransformerBlock::run_mixer(const ops::Activation& x, const SequenceContext& context) const {
  const at::Tensor y = attention != nullptr   ? attention->forward(x, context)
                       : delta_net != nullptr ? delta_net->forward(x, context)
                                              : convolution->forward(x, context);
  return finished(y, attention_out_norm.get(), mixer_dropout.get());
}

const Linear& TransformerBlock::mixer_output() const {
  if (attention != nullptr) return *attention->o_proj;
  return delta_net != nullptr ? *delta_net->out_proj : *convolution->out_proj;
}

at::Tensor TransformerBlock::run_mlp(const at::Tensor& x, const ops::Activation& read,
                                     const SequenceContext& context) const {
  const auto run = [&] {
    if (sparse_mlp == nullptr) return mlp->forward(read);
    if (mlp == nullptr) return sparse_mlp->forward(read, context);
    const at::Tensor dense = dense_out_norm->forward(mlp->forward(read));
    return dense + sparse_out_norm->forward(sparse_mlp->forward(x, context));
  };
  return finished(run(), mlp_out_norm.get(), mlp_dropout.get());
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const SequenceContext& context) {
  return options_.tokens == TransformerBlockOptions::Tokens::All ? run_all(x, context) : run_side(x, context);
}

at::Tensor TransformerBlock::run_side(const at::Tensor& x, const SequenceContext& context) const {
  TESSERA_ASSERT(context.sides != nullptr, "a block of one side needs the sides of the documents");
  const DocumentSide& source = context.sides->source;
  const bool reads_sources = options_.tokens == TransformerBlockOptions::Tokens::Sources;
  const DocumentSide& own = reads_sources ? source : context.sides->target;
  // After the first pass of a generation there are no sources any more.
  if (own.count() == 0 && context.cache != nullptr) return x;
  SequenceContext side = context;
  side.document_starts = own.starts;
  // The dropout masks of some rows are those of their tokens.
  const RandomPlace* const place = RandomScope::current();
  const bool has_masks = place != nullptr && drops(*this);
  const auto place_of = [&](const at::Tensor& rows) { return place_of_rows(*place, rows, x.size(0)); };
  if (cross_attention != nullptr && source.count() > 0) {
    std::optional<RandomScope> scope;
    if (has_masks) scope.emplace(place_of(source.rows));
    side.memory = cross_attention->read(x.index_select(0, source.rows));
  }
  std::optional<RandomScope> scope;
  if (has_masks) scope.emplace(place_of(own.rows));
  at::Tensor y = run_all(x.index_select(0, own.rows), side);
  if (last_norm_ != nullptr) y = last_norm_->forward(y);
  if (last_dropout_ != nullptr) y = last_dropout_->forward(y);
  return x.index_copy(0, own.rows, y);
}

at::Tensor TransformerBlock::run_all(const at::Tensor& x, const SequenceContext& context) const {
  at::Tensor y = run_branches(x, context);
  if (layer_input != nullptr) y = add_layer_input(y, context);
  return result_scale == nullptr ? y : y * result_scale->weight.to(y.scalar_type());
}

at::Tensor TransformerBlock::add_layer_input(const at::Tensor& x, const SequenceContext& context) const {
  TESSERA_ASSERT(context.layer_inputs, "a block with a vector of its own needs those of the layers");
  const auto read = context.layer_inputs->read(x, static_cast<size_t>(options_.layer_input_number), 1);
  return read[0] + layer_input->forward(read[0], read[1]);
}

at::Tensor TransformerBlock::run_branches(const at::Tensor& x, const SequenceContext& context) const {
  if (options_.norms_sums) {
    const at::Tensor h = attention_norm->forward(x + run_mixer(x, context));
    return mlp_norm->forward(h + run_mlp(h, h, context));
  }
  const auto [h, normed_x] = add_and_norm(attention_norm.get(), x, std::nullopt);
  const at::Tensor attended = run_mixer(normed_x, context);
  if (options_.is_parallel) {
    const ops::Activation read = mlp_norm == nullptr ? normed_x : mlp_norm->add_and_norm(h).normed;
    return h + attended + run_mlp(h, read, context);
  }
  if (cross_attention != nullptr) {
    const auto [sum, read] = add_and_norm(cross_norm.get(), h, attended);
    const at::Tensor found = finished(cross_attention->forward(read, context), nullptr, cross_dropout.get());
    const auto [residual, normed] = add_and_norm(mlp_norm.get(), sum, found);
    return residual + run_mlp(residual, normed, context);
  }
  const auto [residual, normed] = add_and_norm(mlp_norm.get(), h, attended);
  return residual + run_mlp(residual, normed, context);
}

}  // namespace tessera::nn
