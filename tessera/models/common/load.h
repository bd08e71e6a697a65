// The values of a model's parameters: in which tensors its files keep them, and how a model that is not
// trained loads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/device/device.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// Returns the table of the tensors in which files of the model's family keep its parameters, without those of
// adapters. It takes the model's shapes as the global ones, so it must be made before any sharding.
checkpoint::StateDictAdapter state_dict_adapter(const CausalLM& model);

// Lists the parameters that have a row for each token: the embedding, and an output head of its own.
std::vector<std::string> token_tables(const CausalLM& model);

// Compares the tensors of the files with the model's state_dict_adapter(). Throws Error(Model, "TENSORS")
// that lists what is missing, unknown, of another shape or not of a floating type, under the files' names, at
// most 20 of them.
// If `takes_new_head`, the files may lack what a classifier or a masked language model has behind its body.
// Returns the names of the parameters that they lack.
std::vector<std::string> check_tensors(const CausalLM& model, const checkpoint::StoredTensors& files,
                                       bool takes_new_head = false);

// Lists the modules of a classifier's head that are trained whole beside an adapter: those beside the body,
// by their shortest names, and those in the body that the files lack (all of them if `files` is null).
std::vector<std::string> head_modules(const CausalLM& model, const checkpoint::StoredTensors* files);

// Two names of one parameter under which the files hold different values.
struct DifferentTie {
  std::string own, alias;  // "model.embed_tokens.weight", "lm_head.weight"
};
// Returns the first pair of tied_parameters() that the files hold with different values; nothing if there is
// none. Reads the values of pairs that the files hold twice.
std::optional<DifferentTie> find_different_tie(const CausalLM& model, const checkpoint::StoredTensors& files);

// Returns the box of a parameter that this rank holds, for a model whose layers are cut among ranks.
using BoxOf = std::function<parallel::Box(const at::Tensor& parameter)>;

// Gives every parameter that `source` holds its values, on `device`: the whole parameter, or the box that
// `box_of` returns for it if that is set. Other parameters stay as they are. Not collective.
// Each parameter keeps its type. With `keeps_bf16`, however, the matrices of a float32 model that the source
// keeps in bfloat16 stay bfloat16: this takes half the memory to hold and to read, and gives the same
// numbers, since the model goes on computing in float32. Such a model cannot be trained and takes no adapter;
// its parameters require no gradient.
void load_weights(CausalLM& model, const checkpoint::ParameterSource& source, bool keeps_bf16 = false,
                  at::Device device = kHost, const BoxOf& box_of = {});
// Load the weights from the model's files, which are compared with the model first (check_tensors()); a head
// that the model ties and that differs from the embedding is an Error(Model). For a single process.
void load_weights(CausalLM& model, const std::shared_ptr<const checkpoint::StoredTensors>& files,
                  bool keeps_bf16 = false, at::Device device = kHost);
void load_weights(CausalLM& model, const io::ModelFiles& files, bool keeps_bf16 = false);

// Returns random initial values for all parameters, with the standard deviation of the model's configuration.
// They do not depend on how parameters are cut among ranks; the source must be made before any sharding.
std::shared_ptr<const checkpoint::ParameterSource> random_source(const CausalLM& model, uint64_t seed);

}  // namespace tessera::models
