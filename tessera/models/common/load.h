// The values of a model's parameters: where its files keep them, and how a model that is not trained loads
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/device.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// Where files of the model's family keep its parameters, but for those of adapters. Shapes must be the global
// ones: make it before any sharding.
checkpoint::StateDictAdapter state_dict_adapter(const CausalLM& model);

// Holds the tensors of the files against that table. Throws Error(Model, "TENSORS") that lists what is
// missing, unknown, of another shape or not of a floating type, under the files' names, at most 20.
void check_tensors(const CausalLM& model, const checkpoint::StoredTensors& files);

// The box of a parameter that this rank holds, of a model whose layers are cut.
using BoxOf = std::function<parallel::Box(const at::Tensor& parameter)>;

// Gives every parameter that `source` holds its values, on `device`: all of them, or those in its box where
// the layers are cut. Others stay as they are. Not collective.
// Keeps each parameter's type; or, where `keeps_bf16`, leaves the matrices of a float32 model that the source
// keeps in bfloat16 as they are: half the memory to hold and to read, and the same numbers, since the model
// goes on computing in float32. Such a model cannot be trained and takes no adapter; it requires no gradient.
void load_weights(CausalLM& model, const checkpoint::ParameterSource& source, bool keeps_bf16 = false,
                  at::Device device = kHost, const BoxOf& box_of = {});
// The same of the model's files, or a folder's, which are checked first. Single process.
void load_weights(CausalLM& model, const std::shared_ptr<const checkpoint::StoredTensors>& files,
                  bool keeps_bf16 = false, at::Device device = kHost);
void load_weights(CausalLM& model, const io::ModelFiles& files, bool keeps_bf16 = false);

// Random initial values for all parameters, with the standard deviation of the model's configuration. As any
// source, the same for any cut; make it before any sharding.
std::shared_ptr<const checkpoint::ParameterSource> random_source(const CausalLM& model, uint64_t seed);

}  // namespace tessera::models
