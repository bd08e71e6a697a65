// Opens the model that --model names: a model folder, an adapter's folder, or a GGUF file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::generation {

// Returns the folder of an adapter's base model. The path in the adapter's configuration is taken as it is,
// or beside the adapter. Throws Error(Model, "ADAPTER-BASE") with `how_to_name` as the hint.
std::string adapter_base(const std::string& adapter, const std::string& how_to_name);

class ModelSource {
 public:
  // Opens a model; `adapter` may be empty. If `path` is an adapter's folder, its base is the model that
  // adapter_base() finds. The tokenizer is the adapter's if it brings one. Throws Error(Model).
  ModelSource(std::string path, std::string adapter);

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  // Loads the model as load_for_inference() does. Collective.
  std::shared_ptr<models::CausalLM> load(const at::TensorOptions& options,
                                         const parallel::DeviceMesh& mesh) const;
  // Returns the ids that end an answer: those of the model's configuration and those of the tokenizer.
  std::vector<int64_t> stop_ids(const models::CausalLM& model) const;

 private:
  std::string base_, adapter_;
  std::optional<text::Tokenizer> tokenizer_;
};

}  // namespace tessera::generation
