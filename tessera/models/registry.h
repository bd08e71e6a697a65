// From a config.json to a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// Reads `folder`/config.json, or the file itself if the path ends in .json, through the family that its
// model_type names. Throws Error(Model) for an unknown model_type, naming the known ones.
std::shared_ptr<const ModelConfig> read_model_config(const std::string& path);
// The same of the text of a config.json that was read from `file`.
std::shared_ptr<const ModelConfig> parse_model_config(const std::string& text, const std::string& file);

// The model of a config, on the meta device, with parameters of `dtype`.
std::shared_ptr<CausalLM> build_model(const ModelConfig& config, at::ScalarType dtype);
// read_model_config() and build_model() in one.
std::shared_ptr<CausalLM> build_model(const std::string& path, at::ScalarType dtype);

// The values of model_type that can be built.
std::vector<std::string> known_model_types();

}  // namespace tessera::models
