// Muon: updates that are orthogonalised as whole matrices.
#pragma once

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Returns Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024) for one
// matrix: `kind` is Muon (as Liu et al., "Muon is scalable for LLM training", 2025, and Axolotl compute it),
// MuonJordan (the author's code) or MuonTorch (torch.optim.Muon). They differ in the momentum and in the
// factor of the learning rate; docs/optimizers.md compares them. The five Newton-Schulz steps run in float64
// for a parameter of float64, in float32 on the host and in bfloat16 on a device.
RulePtr muon_rule(OptimizerKind kind, const OptimizerOptions& options);

// Says whether Muon trains a parameter: a matrix that is neither an embedding nor the output head. AdamW
// trains all others.
bool is_for_muon(const RuleParameter& parameter);

}  // namespace tessera::optim
