// Says in a row for each value of `model_type` what differs between the models of the Llama family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/decoder/read_experts.h"

namespace tessera::models {

// Says which layers' attention has the window that the key `sliding_window` gives. "If asked" means that the
// key `use_sliding_window` must be true; "some" are the layers that `layer_types` names, or else those from
// layer `max_window_layers` on.
enum class LlamaWindows { None, All, AllIfAsked, SomeIfAsked };

struct LlamaKind {
  std::string model_type;
  // These numbers are the defaults of keys.
  double rope_theta = 10000.0, rms_norm_eps = 1e-6;
  int64_t max_position_embeddings = 2048;
  std::optional<int64_t> head_dim;  // nothing: hidden_size / num_attention_heads
  // The key `attention_bias` has a meaning: q, k, v and the output projection have biases if it is true.
  bool has_attention_bias_key = true;
  bool has_qkv_bias = false;  // q, k and v always have biases, and the output projection has none
  bool has_mlp_bias_key = false;
  bool qk_norm = false;
  LlamaWindows windows = LlamaWindows::None;
  std::optional<int64_t> default_window = {};
  std::optional<ExpertKeys> experts = {};
};

// Returns the row of this model_type, which must be one of llama_model_types().
const LlamaKind& llama_kind(const std::string& model_type);
std::vector<std::string> llama_model_types();

}  // namespace tessera::models
