#include "tessera/models/decoder/read_experts.h"

#include <algorithm>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/models/common/read_config.h"

namespace tessera::models {

namespace {

constexpr int64_t kMaxExperts = 1 << 17;  // largest number of experts of all layers together

}  // namespace

ExpertLayers read_experts(const io::JsonReader& reader, ModelConfig& config, const ExpertKeys& keys) {
  ExpertLayers layers;
  const char* const count =
      keys.has_num_experts_key && reader.has("num_experts") ? "num_experts" : keys.count_key;
  config.num_experts = reader.integer(count, 1, kMaxExperts / config.num_layers, keys.num_experts);
  config.experts_per_token =
      reader.integer(keys.per_token_key, 1, config.num_experts, keys.experts_per_token);
  layers.size = reader.integer(keys.size_key, 1, kMaxSize, keys.size);
  check_products(reader, config, {{keys.size_key, layers.size}});
  layers.normalises = !keys.has_norm_key || reader.boolean("norm_topk_prob", keys.normalises);
  if (keys.has_jitter_key && reader.number("router_jitter_noise", 0.0, 1.0, 0.0) != 0.0) {
    throw unsupported(reader, "router_jitter_noise", "noise in the router's input is not implemented")
        .need("0");
  }
  const int64_t step = keys.has_layer_keys ? reader.integer("decoder_sparse_step", 1, kMaxLayers, 1) : 1;
  const auto dense =
      keys.has_layer_keys ? reader.integers("mlp_only_layers", 0, kMaxLayers) : std::vector<int64_t>();
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.are_sparse.push_back((i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end());
  }
  const int64_t first =
      keys.first_key == nullptr ? 0 : reader.integer(keys.first_key, 0, kMaxLayers, keys.first_sparse);
  for (int64_t i = 0; i < std::min(first, config.num_layers); ++i)
    layers.are_sparse[static_cast<size_t>(i)] = false;
  const double coefficient = reader.number("router_aux_loss_coef", 0.0, 1e6, keys.aux_loss_coef);
  if (reader.boolean("output_router_logits", false)) config.router_aux_loss_coef = coefficient;
  return layers;
}

nn::SparseMLPOptions expert_options(const ModelConfig& config, const ExpertLayers& layers,
                                    const ExpertKeys& keys) {
  nn::SparseMLPOptions options{.num_experts = config.num_experts,
                               .experts_per_token = config.experts_per_token,
                               .router = {.normalises = layers.normalises},
                               .transformers_name = keys.transformers_name};
  options.expert = {.hidden_size = config.hidden_size,
                    .intermediate_size = layers.size,
                    .gate = keys.gate,
                    .up = keys.up,
                    .down = keys.down};
  return options;
}

void set_experts(const io::JsonReader& reader, DecoderConfig& c, const ExpertKeys& keys,
                 std::optional<int64_t> shared_size) {
  const ExpertLayers layers = read_experts(reader, c, keys);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    if (!layers.is_sparse(layer)) continue;
    nn::TransformerBlockOptions& block = c.decoder.blocks[static_cast<size_t>(layer)];
    block.mlp_name = keys.mlp_name;
    block.sparse = expert_options(c, layers, keys);
    block.sparse->expert.activation = block.mlp.activation;
    if (!shared_size) continue;
    block.sparse->shared = block.sparse->expert;
    block.sparse->shared->intermediate_size = *shared_size;
  }
}

std::shared_ptr<const ModelConfig> DecoderConfig::in_form_of(const checkpoint::StoredTensors& files) const {
  const auto holds_joined = [&](const nn::TransformerBlockOptions& block) {
    const std::string end = "." + block.mlp_name + ".experts.gate_up_proj";
    return block.sparse && !block.sparse->stacks &&
           std::ranges::any_of(files.tensors(),
                               [&](const auto& tensor) { return tensor.name.ends_with(end); });
  };
  if (std::ranges::none_of(decoder.blocks, holds_joined)) return {};
  auto joined = std::make_shared<DecoderConfig>(*this);
  stack_experts(*joined, {.gate_up = "experts.gate_up_proj", .down = "experts.down_proj"});
  return joined;
}

bool join_projections(std::vector<nn::TransformerBlockOptions>& blocks) {
  bool has_joined = false;
  for (nn::TransformerBlockOptions& block : blocks) {
    if (!block.sparse || block.sparse->stacks || block.sparse->expert.gate.empty()) continue;
    block.sparse->expert.gate_up = "gate_up_proj";
    block.sparse->expert.is_stored_apart = true;
    has_joined = true;
  }
  return has_joined;
}

std::shared_ptr<const ModelConfig> DecoderConfig::with_joined_experts() const {
  auto joined = std::make_shared<DecoderConfig>(*this);
  if (!join_projections(joined->decoder.blocks)) return {};
  return joined;
}

void set_shared_experts(const io::JsonReader& reader, DecoderConfig& c, const ExpertKeys& keys,
                        int64_t shared_size) {
  const int64_t shared = reader.integer("shared_expert_intermediate_size", 1, kMaxSize, shared_size);
  check_products(reader, c, {{"shared_expert_intermediate_size", shared}});
  set_experts(reader, c, keys, shared);
}

void stack_experts(DecoderConfig& config, const nn::SparseMLPOptions::Stacks& stacks) {
  for (nn::TransformerBlockOptions& block : config.decoder.blocks) {
    if (!block.sparse) continue;
    block.sparse->expert.gate_up = "gate_up_proj";
    block.sparse->stacks = stacks;
  }
}

}  // namespace tessera::models
