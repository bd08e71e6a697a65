// The folder that a run leaves: what Transformers, PEFT and vLLM load as it is.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/config/recipe.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// The base model's own files as they were when the run began: what is saved of them later.
struct BaseFiles {
  std::string config;      // the text of config.json
  std::string generation;  // of generation_config.json; empty where there is none
};
// Throws Error(Model) where there is no config.json.
BaseFiles read_base_files(const std::string& folder);

// Bytes of the weights and of the tokenizer that save_result() writes.
int64_t result_bytes(const TrainedModel& trained, const text::Tokenizer* tokenizer);

// Writes a Hugging Face model folder, or the adapter's in PEFT's format when the run trained one, into the
// empty `folder`. One parameter is gathered at a time and written by the first rank. `tokenizer` is saved
// beside it; null where the model has none. Collective over all ranks. Throws, on every rank alike,
// Error(Storage) when the first cannot write, and Error(Numerics) for a weight that is not finite.
void save_result(const TrainedModel& trained, const config::Recipe& recipe, const BaseFiles& base,
                 const text::Tokenizer* tokenizer, comm::Communicator& world, const std::string& folder);

}  // namespace tessera::train
