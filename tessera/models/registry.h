// Lists the families of models, a row for each; reads the config.json of any of them and builds its model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/io/gguf_writer.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// A row says what a family consists of, and what it can do.
struct Family {
  std::vector<std::string> model_types;
  // Reads a config.json whose model_type is one of these.
  std::shared_ptr<ModelConfig> (*read)(const io::JsonReader&);
  // Builds the model of a config that `read` returned, as build_model() does.
  std::shared_ptr<CausalLM> (*build)(const ModelConfig&, at::ScalarType);
  // The GGUF files that can hold its models; empty if there are none.
  std::vector<checkpoint::GgufArchitecture> gguf = {};
  // Adds the metadata that a file of one of these architectures has of a config that `read` returned. Returns
  // the divisors of the rotary frequencies that the file holds as a tensor; none if it needs none. Throws
  // Error(Model, "UNSUPPORTED") for what such a file cannot say. Null if there are no such files.
  std::vector<float> (*add_gguf_metadata)(const ModelConfig&, const checkpoint::GgufArchitecture&,
                                          io::GgufMetadata&) = nullptr;
};

const std::vector<Family>& families();
// Lists the architectures of GGUF files that can be read, in the order in which errors name them.
const std::vector<checkpoint::GgufArchitecture>& gguf_architectures();
// Returns the family that has this model_type, or null.
const Family* find_family(const std::string& model_type);

// Reads config.json of the folder `path`, or the file `path` itself if it ends in .json, with the reader of
// the family that its model_type names. For a multimodal model that is its text part, with ModelConfig::
// is_text_part. Throws Error(Model) for an unknown model_type, naming the known ones.
std::shared_ptr<const ModelConfig> read_model_config(const std::string& path);
// Reads the text of a config.json in the same way; `file` is its path, for errors.
std::shared_ptr<const ModelConfig> parse_model_config(const std::string& text, const std::string& file);

// Lists the keys of a config.json, or of its text_config, that hold a value and are not read, in the file's
// order. Throws what parse_model_config() throws.
std::vector<std::string> unread_config_keys(const std::string& text, const std::string& file);

// Lists the model_types of multimodal folders whose text part is read, each with the model_type that the part
// has unless its own configuration names another one.
std::vector<std::pair<std::string, std::string>> whole_model_types();

// Builds the model of a config, whose model_type is one of its family's, on the meta device, with parameters
// of `dtype`.
std::shared_ptr<CausalLM> build_model(const ModelConfig& config, at::ScalarType dtype);
// Reads the config at `path` (read_model_config()) and builds its model.
std::shared_ptr<CausalLM> build_model(const std::string& path, at::ScalarType dtype);

}  // namespace tessera::models
