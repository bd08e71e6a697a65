// Writes the parameters of a sharded model as a folder that Transformers, PEFT and vLLM load as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/core/dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::checkpoint {

// The content of a folder: the parameters of a table, written as the table's stored tensors, and small files.
struct FolderPlan {
  StateDictAdapter table;
  io::ShardedSafetensorsWriter::Options weights;           // names and sizes of the files of tensors
  std::vector<std::pair<std::string, std::string>> files;  // name and text of each small file
  std::optional<DType> dtype;  // type of all written weights; nothing = each parameter's own type
  // Names of the table's tensors [n, rows, columns] that are written as [rows, columns * n]: the index of
  // their first dim counts fastest. Each is put together in memory before it is written.
  std::set<std::string> innermost_first = {};
  // Tensors on the host, by name, that are written beside the table's and in the type that they have.
  std::vector<std::pair<std::string, at::Tensor>> constants = {};
  // The model whose text part the table describes; its other tensors are written unchanged. Null if the table
  // describes a whole model.
  std::shared_ptr<const WholeModel> whole = nullptr;
};

// The base model's small files as they were when a run began. They are saved with the result later.
struct BaseFiles {
  std::string config;      // the text of config.json
  std::string generation;  // the text of generation_config.json; empty if there is none
  // The names and texts of the files that say how a multimodal model reads images and sounds.
  std::vector<std::pair<std::string, std::string>> processors = {};
};
// Reads these files of a model folder; config.json as plain_config() gives it. Throws Error(Model) if there
// is no config.json.
BaseFiles read_base_files(const std::string& folder);

// Returns the text of config.json changed to say that the weights are of this type: F64, F32, BF16 or F16.
std::string with_config_dtype(const std::string& config_json, DType dtype);

// Returns the plan of a model folder whose weights are of type `dtype`. Its config.json is the base's with
// this type.
// `whole`: null unless the table is the text part of a larger model.
FolderPlan model_folder(StateDictAdapter table, const BaseFiles& base, DType dtype,
                        std::shared_ptr<const WholeModel> whole = nullptr);

// Returns the plan changed to weights of type `dtype`, also in its config.json if it has one.
FolderPlan with_dtype(FolderPlan plan, DType dtype);

// Returns the bytes of the table's tensors that save_folder() writes; `dtype` as in FolderPlan.
int64_t weight_bytes(const parallel::ShardedModel& model, const StateDictAdapter& table,
                     std::optional<DType> dtype = {});

// Writes the plan into `folder`, which is made if it is missing. One parameter is gathered at a time and
// written by the first rank, which needs 16 MiB beside it if the files keep it transposed or cut along
// another dim than the first. Collective. Errors are kept in `work`, among them an Error(Numerics) for a
// weight that is not finite, or no longer finite in the plan's type; the caller must call work.finish().
void save_folder(const parallel::ShardedModel& model, const FolderPlan& plan, const std::string& folder,
                 comm::AgreedWork& work);

}  // namespace tessera::checkpoint
