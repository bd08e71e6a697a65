// Writing the parameters of a sharded model as the folder that Transformers, PEFT and vLLM load as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/core/dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::checkpoint {

// What a folder is to hold: the parameters of a table, as its stored tensors, and small files beside them.
struct FolderPlan {
  StateDictAdapter table;
  io::ShardedSafetensorsWriter::Options weights;
  std::vector<std::pair<std::string, std::string>> files;  // name and text
  std::optional<DType> dtype;  // of the weights; nothing for that of each parameter
};

// The base model's own files as they were when a run began: what is saved of them later.
struct BaseFiles {
  std::string config;      // the text of config.json
  std::string generation;  // of generation_config.json; empty where there is none
};
// Throws Error(Model) where there is no config.json.
BaseFiles read_base_files(const std::string& folder);

// A model folder whose weights are of type `dtype`: config.json says so and is the base's otherwise.
FolderPlan model_folder(StateDictAdapter table, const BaseFiles& base, DType dtype);

// The plan with weights of type `dtype`, which a config.json in it says.
FolderPlan with_dtype(FolderPlan plan, DType dtype);

// Bytes of the tensors that save_folder() writes.
int64_t weight_bytes(const parallel::ShardedModel& model, const StateDictAdapter& table,
                     std::optional<DType> dtype = {});

// Writes the plan into `folder`, which is made where it is missing. One parameter is gathered at a time, and
// written by the first rank, which needs 16 MiB beside it where the files keep it transposed or cut along
// another dim than the first. Collective; `work` holds what went wrong, also an Error(Numerics) for a weight
// that is not finite, or not in the plan's type: its finish() is the caller's.
void save_folder(const parallel::ShardedModel& model, const FolderPlan& plan, const std::string& folder,
                 comm::AgreedWork& work);

}  // namespace tessera::checkpoint
