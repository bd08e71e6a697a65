// Rules that need norms, row sums or column sums of a whole parameter.
#pragma once

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Wortsman et al., "Stable and low-precision training for large-scale vision-language models" (2023),
// algorithm 2, as the package optimi computes it: AdamW whose learning rate is divided by the root mean
// square of gradient / root of the second moment, where that is above 1.
RulePtr stable_adamw_rule(const OptimizerOptions& options);

// You et al., "Large batch optimization for deep learning" (2020), algorithm 2: Adam's direction plus the
// decay, times the ratio of the norms of parameter and direction, which min_coeff and max_coeff bound.
RulePtr lamb_rule(const OptimizerOptions& options);

// Shazeer and Stern, "Adafactor" (2018), algorithms 4 and 5, as Transformers calls it: with a learning rate
// of the schedule and without momentum. A parameter of several dims keeps averages of rows and columns of
// squares over its last two dims.
RulePtr adafactor_rule(const OptimizerOptions& options);

// Luo et al., "CAME: confidence-guided adaptive memory efficient optimization" (2023), algorithm 2, as the
// package came_pytorch computes it.
RulePtr came_rule(const OptimizerOptions& options);

}  // namespace tessera::optim
