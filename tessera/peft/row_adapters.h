// Several adapters on one model, of which each row of a pass has one or none: those of a server whose
// requests choose an adapter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/device/device.h"
#include "tessera/nn/adapter_rows.h"
#include "tessera/peft/carried_parameters.h"

namespace tessera::peft {

// Loads the adapters of these folders onto `device`, beside the base's weights, which `model` has already.
// Returns the object by which the model tells the layers which rows belong to which adapter: the first folder
// is adapter 1. An adapter's rows get what the adapter alone would give them, up to rounding, and all others
// the base's values to the last bit. Where `model` is one rank's part of a model, `whole` is the whole one,
// of which no values are read. The adapters are read as load_adapter() reads them, with its errors. Throws
// Error(Model, "ADAPTER") for an adapter that is no sum of low-rank products beside layers that see all rows:
// other kinds, DoRA, modules that are trained whole, rows of tokens, tables of the base, and layers of
// experts.
std::shared_ptr<nn::AdapterRows> apply_row_adapters(torch::nn::Module& model, torch::nn::Module& whole,
                                                    const std::vector<std::string>& folders,
                                                    const TiedModules& tied, at::Device device);

}  // namespace tessera::peft
