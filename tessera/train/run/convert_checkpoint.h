// Turns a checkpoint into the model or adapter that its run would leave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/core/dtype.h"
#include "tessera/io/result_folder.h"

namespace tessera::train {

struct ConvertedCheckpoint {
  int64_t step = 0;
  int64_t weight_bytes = 0;
  bool is_adapter = false;
};

// Writes the parameters of the checkpoint in `folder`, saved by any number of ranks, into `result`, which has
// not begun. It becomes, byte for byte, the Hugging Face folder (for an adapter the PEFT folder) that the
// run's output_dir would be. Runs in one process, whose memory holds the model. Every value is compared with
// its hash first. `base_model` is where the run's base model lies now; empty where it has not moved. `dtype`
// is that of the written weights; unset, that of the run's result. Throws Error(Checkpoint), Error(Model) and
// Error(Storage).
ConvertedCheckpoint convert_checkpoint(const std::string& folder, const std::string& base_model,
                                       std::optional<DType> dtype, io::ResultFolder& result);

}  // namespace tessera::train
