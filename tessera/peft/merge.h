// Folds an adapter into its base model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/dtype.h"
#include "tessera/peft/expert_merge.h"

namespace tessera::peft {

struct MergeReport {
  int64_t num_merged = 0;    // weights that an adapter was added to
  int64_t num_replaced = 0;  // tensors taken whole from the adapter (modules_to_save)
  int64_t total_bytes = 0;   // of all tensors written
};

// Writes a plain Hugging Face folder, which is put in place as a whole (io/result_folder.h): the tensors of
// `base`, those of a folder, with W + scaling B A for every adapted weight (transposed where the base holds
// W^T; with the lengths of DoRA) or with its rows or columns times the factors of (IA)^3, and with the
// adapter's bias added to the layer's own, computed in float64 and rounded once to the base's dtype, or to
// `dtype`, in which all weights are written then; beside them the base's config.json and
// generation_config.json, and the tokenizer's files (the adapter's own where it has a tokenizer). Memory
// holds pieces of one tensor at a time, whatever the size of the model. `overwrites` lets the folder take the
// place of an older result. The base and the adapter stay as they are.
//
// Throws Error(Model, "ADAPTER") when a tensor of the adapter has no counterpart of its shape in the base,
// when a factor of a pair is missing or holds a value that is not finite, or when nothing would be merged;
// Error(Model, "DTYPE") for a weight that is neither F64, F32, F16 nor BF16; Error(Numerics, "MERGE") for a
// merged weight that is not finite or too large for any product; and what io::ResultFolder throws. `experts`
// is needed by an adapter of the parameters of experts, and else may be null.
MergeReport merge_adapter(std::shared_ptr<const checkpoint::StoredTensors> base,
                          const std::string& adapter_folder, const std::string& output_folder,
                          bool overwrites = false, std::optional<DType> dtype = {},
                          const ExpertBase* experts = nullptr);

}  // namespace tessera::peft
