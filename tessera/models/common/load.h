// Model files into parameters, by ranged reads.
#pragma once

#include <string>

#include "tessera/io/model_files.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/read_rows.h"

namespace tessera::models {

// Compares the tensors of the files with the parameters of the model, whose shapes must still be the global
// ones (before any sharding). Parameters of adapters are not looked for. Throws Error(Model, "TENSORS") that
// lists what is missing, unknown, of another shape or not of a floating type, at most 20 names.
void check_tensors(const CausalLM& model, const io::ModelFiles& files);

// The name under which the files hold a parameter: its own, or an alias of tied_parameters() where only
// that is there.
std::string stored_name(const CausalLM& model, const io::ModelFiles& files, const std::string& parameter);

// The per-tensor piece, which sharded loading calls for each rank's rows.
using nn::read_rows;

// Single process: checks, then gives every parameter of the model but those of adapters its values. Keeps
// each parameter's type.
void load_weights(CausalLM& model, const io::ModelFiles& files);

}  // namespace tessera::models
