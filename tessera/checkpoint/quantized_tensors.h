// The weights of a model folder, also of one whose weights are quantised.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/io/model_files.h"

namespace tessera::checkpoint {

// Returns the tensors of a model's folder. If config.json, or a file of the quantising program, says that
// weights are quantised, each of them is one tensor, P.weight [out, in] in the type of most other weights,
// whose values are those of the format's reference: computed in float32, then cast. It has a form, in which
// its blocks can be read, unless each column has a scale of its own. The tensors that it is made of do not
// show, all others are as they are. The formats that are read: docs/quantization.md. Throws Error(Model,
// "UNSUPPORTED") for others, and Error(Model, "QUANTIZED") for tensors that do not fit together; for scales
// that are no numbers only when they are read.
//
// `make_table` makes the table of the model's plain files, and is called if weights are quantised. A weight
// that this table has transposed is [in, out], without a form; a bias of zeros that AutoGPTQ wrote for a
// layer without one does not show. An empty table changes nothing.
std::shared_ptr<const StoredTensors> model_tensors(std::shared_ptr<const io::ModelFiles> files,
                                                   const std::function<StateDictAdapter()>& make_table);

// Returns the text of a config.json without what it says about the quantisation of weights, as it is for
// weights that are read by model_tensors(); a text that says nothing comes back unchanged.
std::string plain_config(const std::string& config_json);

}  // namespace tessera::checkpoint
