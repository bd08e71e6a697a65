// Folding an adapter into its base model.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::peft {

struct MergeReport {
  int64_t num_merged = 0;    // weights that an adapter was added to
  int64_t num_replaced = 0;  // tensors taken whole from the adapter (modules_to_save)
  int64_t total_bytes = 0;   // of the tensors written
};

// Leaves a plain Hugging Face folder, put in place as a whole (io/result_folder.h): the tensors of
// `base_folder` with W + scaling B A for every adapted weight (transposed where the base holds W^T), computed
// in float64 and rounded once to the base's type, beside the base's config.json and generation_config.json
// and the tokenizer's files (the adapter's own where it has a tokenizer). Holds pieces of one tensor at a
// time, whatever the size of the model. `overwrites`: takes the place of an older result.
//
// Throws Error(Model, "ADAPTER") when a tensor of the adapter has no counterpart of its shape in the base,
// when a factor of a pair is missing or holds a value that is not finite, or when nothing would be merged;
// Error(Numerics, "MERGE") for a merged weight that is not finite or too large for any product; what
// io::ResultFolder throws. Nothing of the base or the adapter is changed.
MergeReport merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                          const std::string& output_folder, bool overwrites = false);

}  // namespace tessera::peft
