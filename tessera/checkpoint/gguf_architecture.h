// Describes one architecture of GGUF files: what it and its tensors are called there and at Hugging Face.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tessera::checkpoint {

// A tensor under both names. For a tensor of a layer they are what follows "blk.<n>." and
// GgufArchitecture::layers.
struct GgufName {
  const char* gguf;
  const char* hugging_face;
  bool is_required = false;
  bool is_rotated = false;  // its rows are turned by rotary positions
};

// A model of RMSNorms, rotary positions and gated MLPs: the keys of its metadata are read as those of Llama.
struct GgufArchitecture {
  std::string name;                    // "general.architecture"
  std::string model_type, class_name;  // in config.json
  // Says in which order GGUF files keep the rows of a head that are rotated: (pair, half) if true, which
  // rotates neighbouring rows, or Hugging Face's (half, pair).
  bool interleaves_rope = false;
  bool has_bias_keys = false;  // whether config.json has the keys attention_bias and mlp_bias
  std::span<const GgufName> outer_names, layer_names;
  std::string layers;  // "model.layers."
  // llama.cpp loads such files with kGgufRopeFactors.
  bool has_rope_factors = false;
  // Models of these types are written as this architecture too, and come back as `model_type`.
  std::vector<std::string> also_model_types = {};
  // llama.cpp loads such files only if the heads together have the hidden size.
  bool needs_whole_heads = false;
};

}  // namespace tessera::checkpoint
