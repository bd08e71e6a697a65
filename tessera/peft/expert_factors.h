// LoRA of the experts of a layer, whose weights Transformers holds in one parameter (PEFT's
// target_parameters): their factors lie together in files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::peft {

// The place of a layer of an expert among those of all experts of its MLP.
struct ExpertPlace {
  std::string parameter;  // Transformers' name for all: "model.layers.0.mlp.experts.down_proj"
  int64_t index = 0, count = 0;
};

// Places by the names of layers: "model.layers.0.mlp.experts.3.down_proj".
using ExpertPlaces = std::map<std::string, ExpertPlace>;

// Finds the places of the layers of all experts that have one projection for gate and up.
ExpertPlaces find_expert_places(const torch::nn::Module& model);

// Makes the parts of a factor of an expert's layer parts of PEFT's tensor of all experts. A [rank, in] is a
// run of rows of [experts * rank, in]. B [out, rank] is one of [experts, out, rank]; see
// with_expert_factors(). If both parameters of an MLP are adapted, as the adapted `places` say, PEFT has the
// factors of gate_up_proj under "experts.base_layer", and otherwise all under "experts".
void put_in_experts(std::vector<checkpoint::StoredPart>& parts, const ExpertPlace& place, bool is_b,
                    const ExpertPlaces& places);

// Tells whether a tensor of the table is such a B of all experts: PEFT's files hold [experts, out, rank] as
// [out, rank * experts], where the number of the expert counts fastest.
bool is_expert_factor(const checkpoint::StateDictAdapter::StoredTensor& tensor);

// Returns the tensors with those of the table that are such a B in the table's form; the same tensors if
// there are none. Reading one keeps it and the one before, in the type that was asked for.
std::shared_ptr<const checkpoint::StoredTensors> with_expert_factors(
    std::shared_ptr<const checkpoint::StoredTensors> files, const checkpoint::StateDictAdapter& table);

}  // namespace tessera::peft
