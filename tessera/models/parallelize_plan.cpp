#include "tessera/models/parallelize_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/output_head.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {
namespace {

using parallel::LayerStyle;
using parallel::StyledLayers;

using ModuleNames = std::map<const torch::nn::Module*, std::string>;

constexpr std::string_view kWeight = ".weight";

void add_qk_norms(const std::string& name, const nn::AttentionOptions& o, bool has_copies,
                  StyledLayers& layers) {
  using enum nn::QkNormOptions::Over;
  const nn::QkNormOptions& norms = *o.qk_norm;
  LayerStyle q = LayerStyle::partial_gradient(), k = q;
  if (norms.over != Head) {
    const bool is_by_row = norms.over == EachHead && norms.stored_list.empty();
    const int64_t heads = o.num_heads / o.num_kv_heads, size = is_by_row ? 1 : o.head_dim;
    q = LayerStyle::cut_norm(heads * size, has_copies ? size : heads * size, /*is_shared=*/false);
    k = LayerStyle::cut_norm(size, size, has_copies);
  }
  layers.emplace_back(name + "." + norms.q, q);
  if (!o.reads_keys()) layers.emplace_back(name + "." + norms.k, k);
}

// Every rank makes the latent vectors of all tokens, and the queries, keys and values of its own heads.
void add_latent(const std::string& name, const nn::AttentionOptions& o, StyledLayers& layers) {
  const nn::LatentOptions& latent = *o.latent;
  const auto add = [&](const std::string& layer, LayerStyle style) {
    layers.emplace_back(name + "." + layer, style);
  };
  layers.emplace_back(name, LayerStyle::region());
  add(latent.q_rank ? "q_b_proj" : o.q, LayerStyle::colwise(o.head_dim, o.head_dim));
  for (const char* whole : {"q_a_proj", "q_a_layernorm"}) {
    if (latent.q_rank) add(whole, LayerStyle::partial_gradient());
  }
  for (const char* whole : {"kv_a_proj_with_mqa", "kv_a_layernorm"})
    add(whole, LayerStyle::partial_gradient());
  const int64_t width = o.head_dim - latent.rope_dim + latent.value_dim;
  add("kv_b_proj", LayerStyle::colwise(width, width));
  add(o.o, LayerStyle::rowwise(latent.value_dim, latent.value_dim));
}

// Returns the smallest number of key/value heads of the layers that make them apart, by which the ranks are
// dealt (TensorParallelPlan::most_shared_parts); 0 without such layers.
int64_t fewest_heads(const CausalLM& model) {
  int64_t fewest = 0;
  for (const auto& block : model.blocks()) {
    if (!block->options().has_attention()) continue;
    const nn::AttentionOptions& o = block->options().attention;
    if (o.qkv.empty()) fewest = fewest == 0 ? o.num_kv_heads : std::min(fewest, o.num_kv_heads);
  }
  return fewest;
}

// `parts`: fewest_heads(). Where a layer has more heads, keys and values are cut like the queries, along both
// axes that the ranks may form.
void add_attention(const std::string& name, const nn::AttentionOptions& o, int64_t parts,
                   StyledLayers& layers) {
  if (o.latent) return add_latent(name, o, layers);

  const int64_t heads = o.num_heads / o.num_kv_heads, group = heads * o.head_dim;
  const bool has_copies = o.num_kv_heads == parts;
  const int64_t inner = has_copies ? o.head_dim : group;
  const auto add = [&](const std::string& layer, LayerStyle style) {
    layers.emplace_back(name + "." + layer, style);
  };
  layers.emplace_back(name, LayerStyle::region());
  if (o.qkv.empty()) {
    const int64_t outputs = o.has_output_gate ? 2 : 1;  // of a head: its query, and a gate
    add(o.q, LayerStyle::colwise(outputs * group, outputs * inner));
    for (const std::string& layer : {o.k, o.v}) {
      if (layer.empty() || o.reads_keys()) continue;
      add(layer,
          has_copies ? LayerStyle::shared_colwise(o.head_dim) : LayerStyle::colwise(o.head_dim, o.head_dim));
    }
  } else {
    add(o.qkv, LayerStyle::colwise((heads + 2) * o.head_dim));  // the queries, key and value of a head
  }
  add(o.o, LayerStyle::rowwise(group, inner));
  if (o.qk_norm) add_qk_norms(name, o, has_copies, layers);
  if (o.has_sinks) add("sinks", LayerStyle::cut_norm(heads, has_copies ? 1 : heads, /*is_shared=*/false));
}

// A rank has some key heads, each with its value heads. All lies head by head.
void add_delta_net(const std::string& name, const nn::GatedDeltaNetOptions& o, StyledLayers& layers) {
  const int64_t values = o.num_value_heads / o.num_key_heads, gates = values * o.value_dim,
                width = 2 * o.key_dim + gates;
  const auto add = [&](const char* layer, LayerStyle style) {
    layers.emplace_back(name + "." + layer, style);
  };
  const auto add_projection = [&](const char* layer, int64_t unit) {
    add(layer, LayerStyle::colwise(unit, unit));
  };
  layers.emplace_back(name, LayerStyle::region());
  if (o.is_joined) {
    add_projection("in_proj_qkvz", width + gates);
    add_projection("in_proj_ba", 2 * values);
  } else {
    add_projection("in_proj_qkv", width);
    add_projection("in_proj_z", gates);
    add_projection("in_proj_b", values);
    add_projection("in_proj_a", values);
  }
  add("conv1d", LayerStyle::cut_norm(width, width, /*is_shared=*/false));
  for (const char* of_heads : {"dt_bias", "A_log"})
    add(of_heads, LayerStyle::cut_norm(values, values, /*is_shared=*/false));
  add("norm", LayerStyle::partial_gradient());
  add("out_proj", LayerStyle::rowwise(gates, gates));
}

// A rank has some channels, which lie in turns. Cuts fall between turns, and between the blocks of a coded
// output projection.
void add_convolution(const std::string& name, const nn::GatedConvolution& mixer, StyledLayers& layers) {
  const ops::WeightForm& form = mixer.out_proj->form();
  const int64_t unit = std::lcm(form ? form->elements : 1, mixer.turn());
  layers.emplace_back(name, LayerStyle::region());
  layers.emplace_back(name + ".in_proj", LayerStyle::colwise(3 * unit, 3 * unit));
  layers.emplace_back(name + ".conv", LayerStyle::cut_norm(unit, unit, /*is_shared=*/false));
  layers.emplace_back(name + ".out_proj", LayerStyle::rowwise(unit, unit));
}

// The inputs of a coded down projection are cut in whole blocks, and the outputs of the others alike. `down`:
// rowwise() or rowwise_part().
template <class Down>
void add_projections(const std::string& name, const nn::MLPOptions& o, const nn::MLP& mlp, const Down& down,
                     StyledLayers& layers) {
  const std::string block = name.substr(0, name.rfind('.'));
  const std::string down_name = (o.is_down_beside ? block : name) + "." + o.down;
  const ops::WeightForm& form = mlp.down_proj->form();
  const int64_t unit = form ? form->elements : 1;
  const auto add = [&](const std::string& layer, int64_t rows) {
    layers.emplace_back((o.is_up_beside ? block : name) + "." + layer, LayerStyle::colwise(rows, rows));
  };
  if (o.has_xielu) layers.emplace_back(name + ".act_fn", LayerStyle::partial_gradient());
  if (!o.gate_up.empty()) {
    // Cuts fall between the turns of gate and up, and so do those of the inputs of `down`.
    layers.emplace_back(down_name, down(std::lcm(unit, mlp.turn()), std::lcm(unit, mlp.turn())));
    return add(o.gate_up, 2 * std::lcm(unit, mlp.turn()));
  }
  if (!o.gate.empty()) add(o.gate, unit);
  add(o.up, unit);
  layers.emplace_back(down_name, down(unit, unit));
}

// All ranks compute the whole router, so they choose the same experts, and the outputs of a token's experts
// are summed over ranks once.
void add_experts(const std::string& name, const nn::SparseMLP& mlp, StyledLayers& layers) {
  const nn::SparseMLPOptions& o = mlp.options();
  const std::string owner = o.is_beside ? name.substr(0, name.rfind('.')) : name;
  layers.emplace_back(name, LayerStyle::summed_region());
  for (const std::string& whole : {o.gate, o.input_norm, o.input_scale, o.expert_scale}) {
    if (!whole.empty()) layers.emplace_back(owner + "." + whole, LayerStyle::partial_gradient());
  }
  for (int64_t e = 0; e < o.num_experts; ++e) {
    add_projections(name + ".experts." + std::to_string(e), o.expert, *mlp.experts[static_cast<size_t>(e)],
                    LayerStyle::rowwise_part, layers);
  }
  if (!o.shared) return;
  if (o.has_shared_gate) layers.emplace_back(name + ".shared_expert_gate", LayerStyle::partial_gradient());
  add_projections(name + "." + o.shared_name, *o.shared, *mlp.shared_expert, LayerStyle::rowwise_part,
                  layers);
}

// A rank cuts the mask of its tokens from that of all, so that masks are those of one process; but for those
// inside of MLPs, where a rank has a part of each row.
void add_dropouts(const CausalLM& model, StyledLayers& layers) {
  std::set<const torch::nn::Module*> of_hidden;
  for (const auto& block : model.blocks()) of_hidden.insert(block->mlp_hidden_dropout.get());
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    const auto* const dropout = dynamic_cast<const nn::Dropout*>(module.value().get());
    if (dropout != nullptr && of_hidden.count(dropout) == 0)
      layers.emplace_back(module.key(), LayerStyle::sliced());
  }
}

// The vectors of all layers are made whole on every rank, of which each uses a part.
void add_layer_inputs(const CausalLM& model, const ModuleNames& names, StyledLayers& layers) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* const inputs = dynamic_cast<const nn::LayerInputs*>(module.get());
    if (inputs == nullptr) continue;
    layers.emplace_back(names.at(inputs), LayerStyle::waiting_region());
    layers.emplace_back(names.at(inputs->projection.get()), LayerStyle::partial_gradient());
    layers.emplace_back(names.at(inputs->norm.get()), LayerStyle::partial_gradient());
  }
}

// The elements of a layer's vector are cut like the hidden ones of an MLP.
void add_layer_input(const std::string& block, const nn::LayerInputsOptions& o, const nn::LayerInput& input,
                     StyledLayers& layers) {
  const ops::WeightForm& form = input.out->form();
  const int64_t unit = form ? form->elements : 1;
  layers.emplace_back(block + "layer_input", LayerStyle::region());
  layers.emplace_back(block + o.gate, LayerStyle::colwise(unit, unit));
  layers.emplace_back(block + o.out, LayerStyle::rowwise(unit, unit));
  layers.emplace_back(block + o.out_norm, LayerStyle::per_token());
}

void add_block(const std::string& name, const nn::TransformerBlock& block, int64_t parts,
               StyledLayers& layers) {
  const nn::TransformerBlockOptions& o = block.options();
  const auto add_norm = [&](const std::string& layer) {
    if (!layer.empty()) layers.emplace_back(name + layer, LayerStyle::per_token());
  };
  add_norm(o.attention_norm_name);
  if (o.delta_net) {
    add_delta_net(name + o.attention_name, *o.delta_net, layers);
  } else if (o.convolution) {
    add_convolution(name + o.attention_name, *block.convolution, layers);
  } else {
    add_attention(name + o.attention_name, o.attention, parts, layers);
  }
  add_norm(o.attention_out_norm_name);
  add_norm(o.mlp_norm_name);
  add_norm(o.mlp_out_norm_name);
  add_norm(o.result_scale_name);
  if (o.layer_inputs) add_layer_input(name, *o.layer_inputs, *block.layer_input, layers);
  if (o.beside) {
    add_norm(o.beside->mlp_out_norm_name);
    add_norm(o.beside->sparse_out_norm_name);
  }
  if (o.sparse)
    add_experts(name + (o.beside ? o.beside->sparse_name : o.mlp_name), *block.sparse_mlp, layers);
  if (o.sparse && !o.beside) return;
  layers.emplace_back(name + o.mlp_name, LayerStyle::region());
  add_projections(name + o.mlp_name, o.mlp, *block.mlp, LayerStyle::rowwise, layers);
}

// Adds what the head of a masked language model has beside the embedding's weight.
void add_head(const CausalLM& model, const ModuleNames& names, StyledLayers& layers) {
  const auto* const head = dynamic_cast<const nn::OutputHead*>(&model.head());
  if (head != nullptr && head->transform().dense != nullptr) {
    layers.emplace_back(names.at(head->transform().dense.get()), LayerStyle::per_token());
    layers.emplace_back(names.at(head->transform().norm.get()), LayerStyle::per_token());
  }
  for (const auto& [module, name] : names) {
    if (dynamic_cast<const nn::HeadBias*>(module) != nullptr)
      layers.emplace_back(name, LayerStyle::vocabulary());
  }
}

}  // namespace

parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model) {
  using enum nn::ParameterRole;
  if (model.config().is_encoder_decoder) {
    throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
                "tensor parallelism is not supported for an encoder-decoder: its ranks would have to cut the "
                "tables of its position biases by heads")
        .hint("leave out tensor_parallel_size; dp_shard_size cuts the model's weights, too");
  }
  ModuleNames names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    names[module.value().get()] = module.key();
  }
  const std::string first = names.at(model.blocks().front().get());
  const std::string blocks = first.substr(0, first.rfind('.') + 1);  // "model.layers."
  const nn::ParameterRoles roles = model.parameter_roles();
  parallel::TensorParallelPlan plan;
  plan.most_shared_parts = fewest_heads(model);
  add_layer_inputs(model, names, plan.layers);
  add_dropouts(model, plan.layers);
  for (const auto& [role, style] :
       {std::pair(Embedding, LayerStyle::vocabulary()), std::pair(LayerTable, LayerStyle::vocabulary()),
        std::pair(Positions, LayerStyle::sliced()), std::pair(Norm, LayerStyle::per_token()),
        std::pair(OutputHead, LayerStyle::vocabulary())}) {
    for (const auto& [name, own] : roles) {
      if (own != role || !name.ends_with(kWeight) || name.starts_with(blocks)) continue;
      const std::string layer = name.substr(0, name.size() - kWeight.size());
      const bool is_named =
          std::ranges::any_of(plan.layers, [&](const auto& styled) { return styled.first == layer; });
      if (!is_named) plan.layers.emplace_back(layer, style);
    }
  }
  add_head(model, names, plan.layers);
  for (const auto& block : model.blocks())
    add_block(names.at(block.get()) + ".", *block, plan.most_shared_parts, plan.layers);
  return plan;
}

}  // namespace tessera::models
