// The configuration of the quantisation of a folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/io/json_reader.h"

namespace tessera::checkpoint::quantized {

enum class Method { BitsAndBytes, Gptq, Awq, CompressedTensors, Fp8, ModelOpt, Mxfp4 };

struct QuantizationConfig {
  Method method;
  io::JsonReader keys;
  std::vector<std::string> group_names = {};  // the keys of config_groups
};

// Reads quantization_config of the folder's config.json, or the file of its own that some programs write:
// quantize_config.json (GPTQ), quant_config.json (AWQ), hf_quant_config.json (ModelOpt). Returns nothing for
// a folder that has none. Throws Error(Model, "UNSUPPORTED") for a method that cannot be read.
std::optional<QuantizationConfig> read_quantization_config(const std::string& folder);

}  // namespace tessera::checkpoint::quantized
