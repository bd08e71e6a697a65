// Rules that compute each element of a parameter from its own gradients alone.
#pragma once

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// AdamW in the types of rule.h, for the parameters that rules over matrices and 8-bit states leave to it; see
// ops::adamw().
RulePtr adamw_rule(const OptimizerOptions& options);

// Gradient descent with momentum, dampening and Nesterov's step as torch.optim.SGD; weight decay is added to
// the gradient.
RulePtr sgd_rule(const OptimizerOptions& options);

// Chen et al., "Symbolic discovery of optimization algorithms" (2023), algorithm 2, with decoupled weight
// decay ahead of the step.
RulePtr lion_rule(const OptimizerOptions& options);

// torch.optim.Adagrad (Duchi et al., 2011); weight decay is added to the gradient.
RulePtr adagrad_rule(const OptimizerOptions& options);

// torch.optim.RMSprop, with momentum and the centered variant; weight decay is added to the gradient.
RulePtr rmsprop_rule(const OptimizerOptions& options);

// Pagliardini et al., "The AdEMAMix optimizer: better, faster, older" (2024), algorithm 1: AdamW whose
// numerator has a second, slower average. t_alpha and t_beta3 warm up its weight and its decay.
RulePtr ademamix_rule(const OptimizerOptions& options);

// Defazio et al., "The road less scheduled" (2024), algorithm 1 for AdamW, as the package schedulefree
// computes it. Gradients are taken at y = (1 - beta1) z + beta1 x, where the parameter lies while it trains;
// x, the weighted average of z, is what is evaluated and saved.
RulePtr schedule_free_rule(const OptimizerOptions& options);

}  // namespace tessera::optim
