// Reads the keys of config.json that describe the experts of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/models/decoder/decoder.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::models {

// Says how config.json and the files of a model describe its experts. Numbers are the defaults of keys.
struct ExpertKeys {
  const char* count_key = "num_local_experts";
  bool has_num_experts_key = false;  // `num_experts` stands for that key where it is given
  int64_t num_experts = 0, experts_per_token = 0;
  const char* per_token_key = "num_experts_per_tok";
  const char* size_key = "intermediate_size";  // of the hidden size of an expert
  std::optional<int64_t> size;                 // nothing: the key must be there
  // The key `norm_topk_prob` has a meaning, and this default. Otherwise the weights of a token's experts add
  // up to 1.
  bool has_norm_key = false, normalises = false;
  // The keys `decoder_sparse_step` and `mlp_only_layers` have a meaning. Otherwise all layers have experts.
  bool has_layer_keys = false;
  // The key of the number of layers that have no experts, before those that do; null: there is no such key.
  const char* first_key = nullptr;
  int64_t first_sparse = 0;
  bool has_jitter_key = false;  // `router_jitter_noise` has a meaning, and is refused unless it is 0
  double aux_loss_coef = 0.001;
  // The model's files give these names to the sparse MLP and to an expert's projections.
  std::string mlp_name = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string transformers_name = {};  // of the sparse MLP, where it is another one
};

struct ExpertLayers {
  std::vector<bool> are_sparse = {};  // for each layer, whether it has experts; empty if none has
  int64_t size = 0;                   // hidden size of an expert
  bool normalises = true;             // nn::SparseMLPOptions::normalises

  bool is_sparse(int64_t layer) const {
    return !are_sparse.empty() && are_sparse.at(static_cast<size_t>(layer));
  }
};

// Reads which layers have experts, and of what size, and sets what a ModelConfig holds of experts. Where
// there are keys for it, these are every decoder_sparse_step-th layer except those of mlp_only_layers. Throws
// Error(Model) as readers of configurations do.
ExpertLayers read_experts(const io::JsonReader& reader, ModelConfig& config, const ExpertKeys& keys);

// Describes the sparse MLP of a layer.
nn::SparseMLPOptions expert_options(const ModelConfig& config, const ExpertLayers& layers,
                                    const ExpertKeys& keys);

// Reads the keys and gives the layers their experts. A shared expert exists if its size is given.
void set_experts(const io::JsonReader& reader, DecoderConfig& config, const ExpertKeys& keys,
                 std::optional<int64_t> shared_size = std::nullopt);
// Does the same with a shared expert whose size is that of shared_expert_intermediate_size, or `shared_size`.
void set_shared_experts(const io::JsonReader& reader, DecoderConfig& config, const ExpertKeys& keys,
                        int64_t shared_size);

// Gives the experts of the blocks one projection for gate and up, whose files hold them apart. Returns
// whether there were any without one.
bool join_projections(std::vector<nn::TransformerBlockOptions>& blocks);

// Gives the experts of all layers that have some one projection for gate and up, and says where files hold
// those of all experts of a layer.
void stack_experts(DecoderConfig& config, const nn::SparseMLPOptions::Stacks& stacks);

}  // namespace tessera::models
