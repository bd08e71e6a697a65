// Layouts and gradients of the parameters of a model that is cut into stages.
#pragma once

#include <functional>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

// Returns the ranks, in order, of the stages that use a parameter.
using HoldersOf = std::function<std::vector<int64_t>(const at::Tensor& parameter)>;

// Returns `layouts` with one axis more, along which each parameter of `root` lies whole on the ranks that use
// it and becomes empty on the others. Call it after tensor parallelism and before fully_shard().
ParameterLayouts hold_by_stage(torch::nn::Module& root, const ParameterLayouts& layouts, const RankAxis& axis,
                               const HoldersOf& holders_of);

// Sums tile.grad() of those parameters that several ranks along `axis` hold (a tied embedding) over these
// ranks; the result has the same bits on all of them. Call it after the step's last backward. Collective over
// the axis.
void complete_gradients(const ShardedModel& model, const RankAxis& axis);

}  // namespace tessera::parallel
