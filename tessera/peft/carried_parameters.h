// The weights of the base model that an adapter's files bring beside its factors. PEFT puts the embeddings
// there if the vocabulary was resized, or if save_embedding_layers asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/core/error.h"
#include "tessera/io/model_files.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// Returns an Error(Model, "ADAPTER") about a tensor of an adapter's files.
Error adapter_error(const io::ModelFiles& files, const std::string& tensor, const std::string& what);

// Convert between the name of a parameter in the model, such as
// "model.layers.0.self_attn.q_proj.lora_A.weight", and in an adapter's file,
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". Files call DoRA's magnitudes
// "...lora_magnitude_vector", and hold the factors of LoraAdapter's start in the tensors of its trained
// factors. Rows of AdapterMethod::Prompt are "prompt_embeddings" there. to_peft_norm_name() is for the
// parameters of AdapterMethod::Norms. from_peft_name() returns nothing for a name of another form.
std::string to_peft_name(const std::string& parameter);
std::string to_peft_norm_name(const std::string& parameter);
std::optional<std::string> from_peft_name(const std::string& stored);

// Pairs of modules that share a weight: "lm_head", and "model.embed_tokens" which has it.
using TiedModules = std::vector<std::pair<std::string, std::string>>;
// Lists all modules of the pairs, which cannot be trained apart from each other.
std::vector<std::string> sharing_modules(const TiedModules& tied);

// Returns the parameters of the model that the files hold and that are neither factors nor modules to save.
// Throws Error(Model, "ADAPTER") for one of another shape, and for two names of one weight with different
// values.
std::vector<CarriedParameter> read_carried(const torch::nn::Module& model, const LoraTargets& targets,
                                           const io::ModelFiles& files, const TiedModules& tied);

// Adds the model's tables of tokens to targets.carried, but for those that are trained as a whole: an adapter
// of a model with a new vocabulary brings them, as in PEFT.
void carry_token_tables(const torch::nn::Module& model, const std::vector<std::string>& tables,
                        const TiedModules& tied, LoraTargets& targets);

// Returns the number of tokens of the tables that the files bring; nothing if they bring no embedding. Throws
// Error(Model, "ADAPTER") if another table that they bring, the output head, has another number of rows, or
// if they bring none although the model does not tie it to the embedding.
std::optional<int64_t> carried_vocabulary(const io::ModelFiles& files, bool is_tied);

// Returns the entry of targets.carried for the parameter, or null.
const CarriedParameter* find_carried(const LoraTargets& targets, const std::string& parameter);

}  // namespace tessera::peft
