// Makes models of two layers with random weights.
#pragma once

#include <memory>
#include <vector>

#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/registry.h"

namespace tessera::models {

// Makes a Llama. `windows` are those of its two layers, if they have any.
inline std::shared_ptr<CausalLM> small_model(bool tied = false, at::ScalarType dtype = at::kDouble,
                                             at::Device device = kHost,
                                             const std::vector<int64_t>& windows = {}) {
  LlamaConfig config;
  config.windows = windows;
  config.model_type = "llama";
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.intermediate_size = 10;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.tie_word_embeddings = tied;
  config.rope.head_dim = 4;
  config.initializer_range = 0.5;
  const auto model = build_model(config, dtype);
  load_weights(*model, *random_source(*model, 3), /*keeps_bf16=*/false, device);
  return model;
}

// Makes a Mixtral whose experts are in bfloat16 and have widths that grouped products take.
inline std::shared_ptr<CausalLM> sparse_model(at::Device device) {
  LlamaConfig config;
  config.model_type = "mixtral";
  config.vocab_size = 40;
  config.hidden_size = 16;
  config.intermediate_size = config.experts.size = 24;
  config.num_layers = 2;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = config.rope.head_dim = 8;
  config.num_experts = 6;
  config.experts_per_token = 2;
  config.experts.are_sparse = {true, true};
  config.initializer_range = 0.3;
  const auto model = build_model(config, at::kBFloat16);
  load_weights(*model, *random_source(*model, 3), /*keeps_bf16=*/false, device);
  model->eval();
  return model;
}

}  // namespace tessera::models
