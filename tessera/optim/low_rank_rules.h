// Rules whose moments are those of projected gradients.
#pragma once

#include <cstdint>

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Zhao et al., "GaLore: memory-efficient LLM training by gradient low-rank projection" (2024), algorithm 2
// for AdamW, as the package galore_torch computes it: the gradient is projected by singular vectors of an
// earlier gradient, every update_proj_gap updates those of the newest, and Adam's direction is led back. The
// moments go on when the projection changes.
RulePtr galore_rule(const OptimizerOptions& options);

// Zhu et al., "APOLLO: SGD-like memory, AdamW-level performance" (2024), algorithm 1, as the package
// apollo_torch computes it: the gradient is scaled, each row or column of its longer side or as a whole, by
// what Adam does to its random projection, and grows by no more than 1 % an update. The projections are a
// function of `seed`, the parameter's name and the number of the update.
RulePtr apollo_rule(const OptimizerOptions& options, uint64_t seed);

// Says whether these rules train a parameter: a matrix that optim_target_modules means or, without that, one
// that is neither an embedding nor the output head. AdamW trains all others.
bool is_for_low_rank(const RuleParameter& parameter);

}  // namespace tessera::optim
