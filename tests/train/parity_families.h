// The families of models whose training is compared, under parallel layouts, with one process. A family is a
// row.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::train {

// The comparisons that a row of the table takes part in.
enum class Parity : unsigned {
  Layouts = 1,          // every ZeRO stage, with tensor and context parallel ranks (step_layout_test.cpp)
  ContextParallel = 2,  // context parallel ranks alone and beside other axes (step_layout_test.cpp)
  Pipelines = 4,        // every schedule (step_pipeline_test.cpp)
  FrozenPipelines = 8,  // pipelines whose first layers are frozen (step_pipeline_test.cpp)
  Experts = 16,         // experts over ranks, beside all other axes (step_expert_test.cpp)
  Bf16States = 32,      // optimizer states in bfloat16 (step_states_test.cpp)
  Products = 64,        // all products of axes (products_test.cpp)
};
constexpr Parity operator|(Parity a, Parity b) {
  return static_cast<Parity>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

struct ParityFamily {
  std::string name;  // of the reference model (tests/reference)
  int64_t heads = 1, kv_heads = 1;
  Parity in = {};
  int64_t experts = 1;
  nlohmann::json changes = {};  // to config.json, whose model then starts from random weights
  // Its files call the last norm `final_norm`; config.json holds the number of layers under `layers_key`.
  std::string final_norm = "norm", layers_key = "num_hidden_layers";
  // Layers of its MLPs whose inputs (IA)^3 scales: one reader, and the product; both c_proj of GPT-2.
  std::vector<std::string> mlp_layers = {"up_proj", "down_proj"};

  bool is_in(Parity parity) const { return (static_cast<unsigned>(in) & static_cast<unsigned>(parity)) != 0; }
  bool allows(int64_t tp) const { return tp <= kv_heads || (tp % kv_heads == 0 && tp <= heads); }
};

inline const std::vector<ParityFamily>& parity_families() {
  using enum Parity;
  static const std::vector<ParityFamily> families = {
      {"llama3", 4, 2, Layouts | Pipelines | FrozenPipelines | Bf16States | Products},
      // Biases and transposed matrices.
      {"gpt2", 3, 3, Layouts | Pipelines | Bf16States | Products, 1, {}, "ln_f", "n_layer", {"c_proj"}},
      {"qwen3", 4, 2, Layouts | Products},
      // Five and seven experts, which no number of ranks shares evenly.
      {"mixtral", 4, 2, Experts | Products, 5, {}, "norm", "num_hidden_layers", {"w3", "w2"}},
      {"smollm2", 9, 3, Products},
      // Windows on all layers, and dropout of attention's probabilities.
      {"mistral_sliding", 4, 2, ContextParallel | Products, 1, {{"attention_dropout", 0.2}}},
      {"qwen3_moe", 4, 2, Experts | Products, 7},
      // An expert that all tokens share.
      {"qwen2_moe", 4, 2, Experts | Products, 5},
      // Sinks of attention, and experts whose weights files hold together, with biases; no adapter takes
      // them.
      {"gpt_oss",
       4,
       2,
       Experts | Products,
       5,
       {{"attention_dropout", 0.2}},
       "norm",
       "num_hidden_layers",
       {"o_proj"}},
      // Latent attention, and experts that are chosen in groups with a correction.
      {"deepseek_v3", 4, 4, Experts | Products, 6, {{"attention_dropout", 0.2}}},
      // Gated delta nets beside attention with gated outputs, with three value heads for each key head; in
      // one family with experts and joined projections, in the other one without.
      {"qwen3_next", 4, 2, Experts | Products, 5},
      {"qwen3_5", 4, 2, Layouts | Pipelines},
      {"qwen3_5_multimodal", 4, 2, Layouts},
      {"qwen2", 4, 2, Layouts},
      // Windows on some layers.
      {"qwen2_sliding", 4, 2, ContextParallel},
      // Positions whose frequencies depend on the length of the document.
      {"llama_dynamic", 4, 1, ContextParallel},
      // Three heads, which two ranks share unevenly, and an output projection of its own.
      {"llama2", 3, 3, Layouts | Pipelines | Bf16States},
      // Parts do other things in the families that a Decoder describes: norms around the branches, caps and
      // positions by layer; parallel blocks and norms of single heads; joined projections; norms over all
      // heads.
      {"gemma2", 4, 2, Layouts | Products},
      {"gemma3", 4, 2, ContextParallel | Products},
      // The text part of a multimodal model, whose modules have longer names.
      {"gemma3_multimodal", 4, 2, Layouts},
      // Heads of two sizes, of which some layers have fewer, values from the keys' projection, and frozen
      // numbers.
      {"gemma4", 4, 2, Layouts},
      // Layers that read the keys and values of earlier ones, and an embedding for each layer.
      {"gemma4_shared", 4, 2, Layouts},
      // Experts beside an MLP.
      {"gemma4_moe", 4, 2, Experts, 5},
      {"cohere", 4, 2, Layouts | Pipelines},
      {"glm4", 4, 2, Products},
      {"phi3", 2, 2, Layouts, 1, {}, "norm", "num_hidden_layers", {"gate_up_proj", "down_proj"}},
      {"olmo2", 4, 2, Layouts | Products},
      {"gpt_neox",
       4,
       4,
       Products,
       1,
       {},
       "final_layer_norm",
       "num_hidden_layers",
       {"dense_h_to_4h", "dense_4h_to_h"}},
      // Positions whose frequencies depend on the length of the document, and those that scale queries.
      {"phi3_longrope",
       2,
       2,
       ContextParallel,
       1,
       {},
       "norm",
       "num_hidden_layers",
       {"gate_up_proj", "down_proj"}},
      {"ministral3", 4, 2, ContextParallel},
      // Output projections with a bias, and what older families have otherwise: parts of heads that are
      // rotated by neighbours, learned positions, and layers of the MLP that stand beside it.
      {"phi", 4, 2, Layouts | Pipelines, 1, {}, "final_layernorm", "num_hidden_layers", {"fc1", "fc2"}},
      {"gptj", 3, 3, Layouts, 1, {}, "ln_f", "n_layer", {"fc_in", "fc_out"}},
      // Linear biases of scores, and a norm of the embedding; blocks of codes allow three ranks.
      {"bloom", 3, 3, Layouts | Pipelines, 1, {}, "ln_f", "n_layer", {"dense_h_to_4h", "dense_4h_to_h"}},
      {"falcon_rw",
       6,
       6,
       ContextParallel,
       1,
       {},
       "ln_f",
       "num_hidden_layers",
       {"dense_h_to_4h", "dense_4h_to_h"}},
      // Norms whose scales files hold head by head.
      {"stablelm_norms", 4, 2, Layouts},
      // Learned positions without rotations, and biases everywhere.
      {"opt", 4, 4, Layouts | Pipelines, 1, {}, "final_layer_norm", "num_hidden_layers", {"fc1", "fc2"}},
      // Joined projections whose outputs are clipped. Blocks of codes allow three ranks.
      {"mpt", 3, 3, Layouts, 1, {}, "norm_f", "n_layers", {"up_proj", "down_proj"}},
      // An activation with parameters.
      {"apertus", 4, 2, Layouts},
      // Experts beside MLPs of another width. Context parallel ranks share no document of several chunks.
      {"llama4", 4, 2, Experts, 5, {{"attention_chunk_size", 16}}},
      // Gated short convolutions. Channels that lie in turns of two are cut for blocks of codes, too.
      {"lfm2",
       4,
       2,
       Layouts | Pipelines,
       1,
       {{"hidden_size", 32}, {"intermediate_size", 56}},
       "embedding_norm",
       "num_hidden_layers",
       {"w3", "w2"}},
      {"lfm2_moe",
       4,
       2,
       Experts,
       5,
       {{"hidden_size", 32}},
       "embedding_norm",
       "num_hidden_layers",
       {"w3", "w2"}},
      // The heads can be shared by eight ranks.
      {"llama2",
       8,
       4,
       Products,
       1,
       {{"hidden_size", 32}, {"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 4}}},
  };
  return families;
}

// Returns the first row of this name; models that have none are called as Llama is.
inline ParityFamily parity_family(const std::string& name) {
  for (const ParityFamily& family : parity_families()) {
    if (family.name == name) return family;
  }
  return {name};
}

// Returns the rows that take part in `parity`, as the parameters of a test suite.
inline std::vector<ParityFamily> families_in(Parity parity) {
  std::vector<ParityFamily> chosen;
  for (const ParityFamily& family : parity_families()) {
    if (family.is_in(parity)) chosen.push_back(family);
  }
  return chosen;
}
inline std::string name_of_family(const ::testing::TestParamInfo<ParityFamily>& info) {
  return info.param.name;
}
inline void PrintTo(const ParityFamily& family, std::ostream* out) { *out << family.name; }

}  // namespace tessera::train
