#include "tessera/models/gpt2/model.h"

#include <cmath>

#include "tessera/models/common/score_head.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/output_head.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {
namespace {

nn::TransformerBlockOptions block_options(const Gpt2Config& c, int64_t layer) {
  double scale = c.scales_scores ? 1.0 / std::sqrt(static_cast<double>(c.head_dim)) : 1.0;
  if (c.scales_scores_by_layer) scale /= static_cast<double>(layer + 1);
  nn::TransformerBlockOptions o;
  o.attention = {.hidden_size = c.hidden_size,
                 .num_heads = c.num_heads,
                 .num_kv_heads = c.num_kv_heads,
                 .head_dim = c.head_dim,
                 .qkv_bias = true,
                 .output_bias = true,
                 .scale = scale,
                 .dropout = c.attention_dropout,
                 .o = "c_proj",
                 .qkv = "c_attn"};
  o.mlp = {.hidden_size = c.hidden_size,
           .intermediate_size = c.intermediate_size,
           .bias = true,
           .activation = c.activation,
           .gate = "",
           .up = "c_fc",
           .down = "c_proj"};
  o.norm = {nn::NormOptions::Kind::Layer, c.layer_norm_eps};
  o.mixer_dropout = o.mlp_dropout = c.residual_dropout;
  o.attention_name = "attn";
  o.attention_norm_name = "ln_1";
  o.mlp_norm_name = "ln_2";
  return o;
}

std::shared_ptr<nn::TransformerBlock> make_block(const Gpt2Config& c, int64_t layer, at::ScalarType dtype) {
  const auto block = std::make_shared<nn::TransformerBlock>(block_options(c, layer), layer, dtype);
  for (const auto& linear :
       {block->attention->qkv_proj, block->attention->o_proj, block->mlp->up_proj, block->mlp->down_proj}) {
    linear->set_stored_transposed();
  }
  // Smaller initial weights of the last projection of each residual branch keep the sum over the 2 n_layer
  // branches from growing with their number (Radford et al., 2019, section 2.3).
  const double multiple = 1.0 / std::sqrt(2.0 * static_cast<double>(c.num_layers));
  block->attention->o_proj->set_initial_multiple(multiple);
  block->mlp->down_proj->set_initial_multiple(multiple);
  return block;
}

}  // namespace

Gpt2Model::Gpt2Model(const Gpt2Config& c, at::ScalarType dtype) {
  wte = register_module("wte", std::make_shared<nn::Embedding>(c.vocab_size, c.hidden_size, dtype));
  wpe = register_module("wpe",
                        std::make_shared<nn::Embedding>(c.max_position_embeddings, c.hidden_size, dtype));
  drop = nn::add_dropout(*this, "drop", c.embedding_dropout, "embeddings");
  // A bare module serves as the list: only its children's names matter.
  const auto list = register_module("h", std::make_shared<torch::nn::Module>("h"));
  for (int64_t i = 0; i < c.num_layers; ++i) {
    h.push_back(list->register_module(std::to_string(i), make_block(c, i, dtype)));
  }
  ln_f = register_module(
      "ln_f", nn::make_norm(c.hidden_size, {nn::NormOptions::Kind::Layer, c.layer_norm_eps}, dtype));
}

Gpt2ForCausalLM::Gpt2ForCausalLM(const Gpt2Config& config, at::ScalarType dtype) : config_(config) {
  transformer = register_module("transformer", std::make_shared<Gpt2Model>(config, dtype));
  if (config.classification) {
    head_ = make_score_head(*this, config, transformer->ln_f, "classifier", dtype);
    return;
  }
  if (!config.tie_word_embeddings) {
    lm_head = register_module(
        "lm_head", std::make_shared<nn::Linear>(config.hidden_size, config.vocab_size, false, dtype));
    lm_head->refuse_adapter(
        "is computed together with the loss; list it in lora_modules_to_save to train it whole");
  }
  head_ = lm_head != nullptr ? std::make_shared<nn::OutputHead>(transformer->ln_f, lm_head)
                             : std::make_shared<nn::OutputHead>(transformer->ln_f, transformer->wte);
}

std::vector<TiedParameter> Gpt2ForCausalLM::tied_parameters() const {
  if (!config_.tie_word_embeddings || config_.classification) return {};
  return {{"lm_head.weight", "transformer.wte.weight"}};
}

bool Gpt2ForCausalLM::ignores_tensor(const std::string& name) const {
  // Old versions of Transformers saved the causal masks.
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

at::Tensor Gpt2ForCausalLM::embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                  const at::Tensor&) {
  const at::Tensor x = nn::call(*transformer->wte, input_ids).to(hidden_type()) +
                       nn::call(*transformer->wpe, position_ids).to(hidden_type());
  return transformer->drop == nullptr ? x : transformer->drop->forward(x);
}

}  // namespace tessera::models
