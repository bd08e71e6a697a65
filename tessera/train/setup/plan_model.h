// Plans the model that a recipe trains: all that can be wrong with it shows before any data are read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"
#include "tessera/core/dtype.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/train/setup/freeze.h"
#include "tessera/train/setup/put_adapter.h"

namespace tessera::train {

// Holds the model that a run trains, and how it is saved.
struct ModelSetup {
  std::shared_ptr<models::CausalLM> model;
  std::optional<AdapterSetup> adapter;
  checkpoint::StateDictAdapter saved;  // where the result's files keep each saved parameter
  // The model whose text part is trained whole; null for any other model, and for adapters.
  std::shared_ptr<const checkpoint::WholeModel> whole;
  TrainedRows trained_rows;
  // Frozen weights that restarts of the adapter change (relora.h), by name.
  std::unordered_set<std::string> folded;
  DType base_dtype = DType::F32;  // of most of the base model's weights
};

// A model that is known to fit its files and adapter. It lies on the meta device: its parameters have no
// memory yet.
struct PlannedModel : ModelSetup {
  std::optional<parallel::PipelinePlan> pipeline;
  std::shared_ptr<const checkpoint::ParameterSource> source;
  // The tensors that the source reads: the base model's, then the adapter's.
  std::vector<std::shared_ptr<const checkpoint::StoredTensors>> files;
};

// Builds the model on the meta device, puts adapters on it, and compares both with the headers of their
// files: all that can be wrong with model and adapter shows here, before any data are read. A recipe that
// continues an adapter takes its rank, scale and targets; keys that say otherwise are refused. `base` is the
// recipe's base_model. Not collective. Throws Error(Model); an Error(Config) is added to
// `problems`, and the planned model is not whole then.
PlannedModel plan_model(const config::Recipe& recipe, const models::BaseModel& base,
                        config::Problems& problems);

}  // namespace tessera::train
