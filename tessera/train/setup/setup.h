// Turns a recipe into a sharded model that has its values and is ready to train.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/special_tokens.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"
#include "tessera/core/dtype.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/ops/linear_cross_entropy.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/peft/lora.h"
#include "tessera/train/setup/freeze.h"

namespace tessera::train {

// The adapter of a run, if it has one.
struct AdapterSetup {
  peft::LoraOptions options;
  peft::LoraTargets targets;
};

// Holds the model that a run trains, and how it is saved.
struct ModelSetup {
  std::shared_ptr<models::CausalLM> model;
  std::optional<AdapterSetup> adapter;
  checkpoint::StateDictAdapter saved;  // where the result's files keep each saved parameter
  // The model whose text part is trained whole; null for any other model, and for adapters.
  std::shared_ptr<const checkpoint::WholeModel> whole;
  TrainedRows trained_rows;
  DType base_dtype = DType::F32;  // of most of the base model's weights
};

// A sharded model with its values, ready to train.
struct TrainedModel : ModelSetup {
  std::unique_ptr<parallel::ShardedModel> sharded;
  std::unique_ptr<models::Pipeline> pipeline;  // null where each rank runs the whole model
};

// Returns the axes that the recipe asks for. DDP holds whole parameters, so its dp_shard becomes
// dp_replicate. Throws what config::validate_parallelism() throws.
ParallelDims parallel_dims(const config::Recipe& recipe, int64_t world_size);

// Returns the device that the recipe names, for this rank of its machine. Throws E-CONFIG-DEVICE, at the
// recipe's line, where there is none.
at::Device device_of(const config::Recipe& recipe);

// Dtypes of trained parameters: as the optimizer updates them, and as the forward and backward use them.
// Auto, which a training run replaces first (compute_type.h), stands for Float32.
struct RunTypes {
  at::ScalarType stored, compute;
};
RunTypes run_types(const config::Recipe& recipe);

// Returns the options of the adapter that these keys, or the keys of the recipe, stand for; the former leave
// the method to the latter.
peft::LoraOptions lora_options(const config::LoraConfig& keys);
peft::LoraOptions adapter_options(const config::Recipe& recipe);
// Returns the recipe with its adapter's keys as these options have them, but for the kind of the adapter.
config::Recipe with_lora_options(config::Recipe recipe, const peft::LoraOptions& options);

// Returns the terms that the recipe adds to the loss of a position.
ops::LossTerms loss_terms(const config::Recipe& recipe);

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

// Parallelises a planned model, and only then allocates this rank's tiles and fills them from the plan's
// source: the adapter's files where the recipe continues one, then the model's, then random values. The
// second form also plans the model. Collective. Throws what plan_model() throws.
TrainedModel set_up_model(const config::Recipe& recipe, PlannedModel planned,
                          const parallel::DeviceMesh& mesh);
TrainedModel set_up_model(const config::Recipe& recipe, const parallel::DeviceMesh& mesh);

// Returns the type of the result's weights: that of the recipe's save_dtype, or else that of the base model's
// weights where these are in bfloat16 or float16. Nothing stands for the type in which they are trained: that
// of other bases, of a run in float64, and of adapters.
std::optional<DType> saved_dtype(const ModelSetup& setup, const config::Recipe& recipe);

// Plans the folder that the run leaves: of the model, or of the adapter in PEFT's format when it trained one.
// `base` are the base model's files as they were when the run began; those of the result know the special
// tokens of `tokenizer` if the recipe chose them.
checkpoint::FolderPlan result_folder(const TrainedModel& trained, const config::Recipe& recipe,
                                     const checkpoint::BaseFiles& base,
                                     const std::optional<text::Tokenizer>& tokenizer);

}  // namespace tessera::train
