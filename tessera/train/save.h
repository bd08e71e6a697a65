// The folder that a run leaves: what Transformers, PEFT and vLLM load as it is.
#pragma once

#include <string>

#include "tessera/config/recipe.h"
#include "tessera/data/tokenizer/tokenizer.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// Writes a Hugging Face model folder, or the adapter's folder in PEFT's format when the run trained one. One
// parameter is gathered at a time and written by the first rank. The old files stay until the new ones are
// complete. `tokenizer` is saved beside it; null where the model has none. Collective over all ranks. Throws
// Error(Storage), on every rank when the first cannot write.
void save_result(const TrainedModel& trained, const config::Recipe& recipe, const data::Tokenizer* tokenizer,
                 comm::Communicator& world, const std::string& folder);

}  // namespace tessera::train
