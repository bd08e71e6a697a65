// Finds the layers of a model that a LoRA configuration means.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// The layers to adapt, by name.
using AdaptedLayers = std::vector<std::pair<std::string, std::shared_ptr<nn::Linear>>>;

// Do the parts of find_lora_targets(), with its errors: find the layers that get an adapter, and the names of
// the modules that are trained whole.
AdaptedLayers find_adapted(const torch::nn::Module& model, const LoraOptions& options,
                           const std::vector<std::string>& untouchable);
// Returns the places of the layers among them that are an expert's.
ExpertPlaces places_of(const torch::nn::Module& model, const AdaptedLayers& layers);
std::vector<std::string> find_saved(const torch::nn::Module& model, const LoraOptions& options,
                                    const std::vector<std::string>& untouchable);

// Returns the token embedding and its name. Throws Error(Config, "LORA-TARGET") for a model without one.
std::pair<std::string, std::shared_ptr<nn::Embedding>> find_embedding_module(const torch::nn::Module& model);

// Finds the token embedding, if the options train rows of it; otherwise returns nothing. `saved`: the modules
// that are trained whole. Throws Error(Config, "LORA-TARGET") for ids that it has not, for an id that stands
// twice, and for an embedding that is trained whole; the key() is peft_trainable_token_indices.
std::pair<std::string, std::shared_ptr<nn::Embedding>> find_token_table(
    const torch::nn::Module& model, const LoraOptions& options, const std::vector<std::string>& saved);

}  // namespace tessera::peft
