// Reads the config.json of any family and builds its model.
#pragma once

#include <memory>
#include <string>

#include <c10/core/ScalarType.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// Reads config.json of the folder `path`, or the file `path` itself if it ends in .json, with the reader of
// the family that its model_type names. Throws Error(Model) for an unknown model_type, naming the known ones.
std::shared_ptr<const ModelConfig> read_model_config(const std::string& path);
// Reads the text of a config.json in the same way; `file` is its path, for errors.
std::shared_ptr<const ModelConfig> parse_model_config(const std::string& text, const std::string& file);

// Builds the model of a config on the meta device, with parameters of `dtype`.
std::shared_ptr<CausalLM> build_model(const ModelConfig& config, at::ScalarType dtype);
// Reads the config at `path` (read_model_config()) and builds its model.
std::shared_ptr<CausalLM> build_model(const std::string& path, at::ScalarType dtype);

}  // namespace tessera::models
