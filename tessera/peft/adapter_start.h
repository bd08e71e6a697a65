// First values of adapters that depend on the base's weights: DoRA's magnitudes, the factors of PiSSA, OLoRA
// and LoftQ, rows of the embedding, and rows of a prompt that begin as those of a text's tokens.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// Returns `values`, and beside them what the adapters of a new run begin with: of a start that takes from the
// base, A, B, A0 and -B0 (LoraAdapter); with DoRA the norms of the rows of the weight with its first factors
// (dora.h). `values` gives the base's weights and all else, those of coded weights as their codes have them;
// LoftQ compares these with the values before quantisation, which `plain` gives. `model` has been through
// apply_lora() and has its global shapes. If the options ask for neither, returns `values`.
//
// Reading a factor decomposes the whole weight in float64 on the host, whatever box is asked for, and keeps
// the factors of the last layer; it needs 8 bytes and, for an exact decomposition, about 32 bytes for each
// element of the weight. All ranks that read parts of a factor must run on processors of one kind.
std::shared_ptr<const checkpoint::ParameterSource> with_adapter_start(
    std::shared_ptr<const checkpoint::ParameterSource> values, const torch::nn::Module& model,
    const LoraOptions& options, const LoraTargets& targets,
    std::shared_ptr<const checkpoint::ParameterSource> plain = nullptr);

}  // namespace tessera::peft
