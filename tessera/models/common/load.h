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
// each parameter's type; or, where `keeps_bf16`, leaves the matrices of a float32 model that the files hold
// in bfloat16 as they are: half the memory to hold and to read, and the same numbers, since the model goes on
// computing in float32. Such a model cannot be trained and takes no adapter; it requires no gradient.
void load_weights(CausalLM& model, const io::ModelFiles& files, bool keeps_bf16 = false);

}  // namespace tessera::models
