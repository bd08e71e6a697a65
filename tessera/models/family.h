// Lists the families of models, a row for each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::parallel {
struct TensorParallelPlan;
}

namespace tessera::models {

// A row says what a family consists of, and what it can do.
struct Family {
  std::vector<std::string> model_types;
  // Reads a config.json whose model_type is one of these.
  std::shared_ptr<const ModelConfig> (*read)(const io::JsonReader&);
  // Builds the model of a config that `read` returned, as build_model() does.
  std::shared_ptr<CausalLM> (*build)(const ModelConfig&, at::ScalarType);
  // Returns the plan by which tensor parallelism cuts a model; null if it is not built for the family.
  parallel::TensorParallelPlan (*plan)(const CausalLM&) = nullptr;
  // The GGUF files that can hold its models; empty if there are none.
  std::vector<checkpoint::GgufArchitecture> gguf = {};
};

const std::vector<Family>& families();
// Returns the family that has this model_type, or null.
const Family* find_family(const std::string& model_type);
// Returns the family of a config, which must have one: it was read by it, or made for it.
const Family& family_of(const ModelConfig& config);

}  // namespace tessera::models
