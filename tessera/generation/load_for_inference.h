// Opens the model that a path names (a model folder, an adapter's folder, or a GGUF file) and loads it to be
// used and not trained.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/peft/expert_merge.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::generation {

// Says for which uses a model is loaded, beside making text with the adapter that it has.
struct InferenceUses {
  // Only the hidden states of an encoder matter: it may lack the head of a classifier, and then gets any.
  bool embeddings = false;
  // ModelSource::add_adapters() is called later.
  bool adapters = false;
  // A peft::LoadedAdapter is put on the model later: the weights are as load() with that adapter has them.
  bool loaded_adapters = false;
};

// Returns the model of a folder or a GGUF file in eval mode, with the adapter of `adapter_folder` unless that
// is empty. It computes in the type and on the device of `options` (matrices stored in bf16 stay so; a GGUF
// file is expanded as it is read). Each layer is cut over the ranks along tp, and the layers are dealt to the
// ranks along pp; all ranks must then make the same calls. Throws Error(Model), and Error(Config) for layers
// that cannot be cut so. Collective.
std::shared_ptr<models::CausalLM> load_for_inference(
    const std::string& path, const std::string& adapter_folder, const at::TensorOptions& options,
    const parallel::DeviceMesh& mesh = {comm::Communicator::single(), {}}, InferenceUses uses = {});

// Returns whether a folder holds an adapter and no model. It may hold the base's config.json, which training
// programs put beside an adapter, but not its weights.
bool is_adapter(const std::string& folder);

// Returns the folder or GGUF file of an adapter's base model. The path in the adapter's configuration is
// taken as it is, or beside the adapter. Throws Error(Model, "ADAPTER-BASE") with `how_to_name` as the hint.
std::string adapter_base(const std::string& adapter, const std::string& how_to_name);

// Returns the base model as an adapter of the parameters of its experts sees it, for peft::merge_adapter();
// nothing for any other adapter. Throws Error(Model).
std::optional<peft::ExpertBase> expert_base(const std::string& base, const std::string& adapter);

// Returns the ids that end an answer: those of the model's configuration and those of the tokenizer.
std::vector<int64_t> stop_ids(const models::CausalLM& model, const text::Tokenizer& tokenizer);

// Loads adapters of these folders beside a model, or this rank's part of one, that load_for_inference() has
// made of `path` for them (InferenceUses::adapters), without an adapter of its own. Sequences then choose one
// by models::NewTokens::adapter; the first one is 1. Throws what peft::apply_row_adapters() throws.
void add_adapters(models::CausalLM& model, const std::string& path, const std::vector<std::string>& folders);

class ModelSource {
 public:
  // Opens a model; `adapter` may be empty. If `path` is an adapter's folder, its base is the model that
  // adapter_base() finds. The tokenizer is the adapter's if it brings one. Throws Error(Model).
  ModelSource(std::string path, std::string adapter);

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  // The folder or GGUF file of the model, without its adapter.
  const std::string& base() const { return base_; }
  // The folder of its adapter; empty if it has none.
  const std::string& adapter() const { return adapter_; }
  // Loads the model as load_for_inference() does. Collective.
  std::shared_ptr<models::CausalLM> load(const at::TensorOptions& options, const parallel::DeviceMesh& mesh,
                                         InferenceUses uses = {}) const {
    return load_for_inference(base_, adapter_, options, mesh, uses);
  }
  std::vector<int64_t> stop_ids(const models::CausalLM& model) const {
    return generation::stop_ids(model, tokenizer());
  }

 private:
  std::string base_, adapter_;
  std::optional<text::Tokenizer> tokenizer_;
};

}  // namespace tessera::generation
