#include "tessera/models/llama/model.h"

#include "tessera/nn/call_hook.h"

namespace tessera::models {
namespace {

nn::TransformerBlockOptions block_options(const LlamaConfig& c, int64_t layer) {
  nn::TransformerBlockOptions o;
  o.attention = {.hidden_size = c.hidden_size,
                 .num_heads = c.num_heads,
                 .num_kv_heads = c.num_kv_heads,
                 .head_dim = c.head_dim,
                 .qkv_bias = c.qkv_bias,
                 .output_bias = c.output_bias,
                 .qk_norm = c.qk_norm,
                 .norm_eps = c.rms_norm_eps,
                 .window = c.windows.empty() ? 0 : c.windows.at(static_cast<size_t>(layer))};
  o.mlp = {.hidden_size = c.hidden_size, .intermediate_size = c.intermediate_size, .bias = c.mlp_bias};
  o.norm = {nn::NormOptions::Kind::Rms, c.rms_norm_eps};
  if (!c.is_sparse(layer)) return o;
  const LlamaExperts& names = c.kind().experts.value();
  const nn::MLPOptions expert = {.hidden_size = c.hidden_size,
                                 .intermediate_size = c.expert_size,
                                 .gate = names.gate,
                                 .up = names.up,
                                 .down = names.down};
  o.mlp_name = names.mlp_name;
  o.sparse = {c.num_experts, c.experts_per_token, c.normalises_router, expert};
  return o;
}

}  // namespace

LlamaModel::LlamaModel(const LlamaConfig& c, at::ScalarType dtype) {
  embed_tokens =
      register_module("embed_tokens", std::make_shared<nn::Embedding>(c.vocab_size, c.hidden_size, dtype));
  // A bare module serves as the list: only its children's names matter.
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (int64_t i = 0; i < c.num_layers; ++i) {
    layers.push_back(list->register_module(
        std::to_string(i), std::make_shared<nn::TransformerBlock>(block_options(c, i), i, dtype)));
  }
  norm = register_module("norm", std::make_shared<nn::RMSNorm>(c.hidden_size, c.rms_norm_eps, dtype));
}

LlamaForCausalLM::LlamaForCausalLM(const LlamaConfig& config, at::ScalarType dtype)
    : config_(config), rotary_(config.rope) {
  model = register_module("model", std::make_shared<LlamaModel>(config, dtype));
  if (!config.tie_word_embeddings) {
    lm_head = register_module(
        "lm_head", std::make_shared<nn::Linear>(config.hidden_size, config.vocab_size, false, dtype));
    lm_head->refuse_adapter(
        "is computed together with the loss; list it in lora_modules_to_save to train it whole");
  }
  head_ = lm_head != nullptr ? std::make_shared<nn::OutputHead>(model->norm, lm_head->weight)
                             : std::make_shared<nn::OutputHead>(model->norm, model->embed_tokens);
}

std::vector<TiedParameter> LlamaForCausalLM::tied_parameters() const {
  if (!config_.tie_word_embeddings) return {};
  return {{"lm_head.weight", "model.embed_tokens.weight"}};
}

at::Tensor LlamaForCausalLM::embed(const at::Tensor& input_ids, const at::Tensor&) {
  return nn::call(*model->embed_tokens, input_ids).to(hidden_type());
}

void LlamaForCausalLM::add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const {
  std::tie(context.cos, context.sin) =
      rotary_.angles(position_ids, context.document_starts, hidden_type(), context.part);
}

}  // namespace tessera::models
