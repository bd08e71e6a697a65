// Runs a pipeline schedule.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/pipeline/schedule.h"

namespace tessera::parallel {

// The computations of the stages that a rank holds, each for one micro-batch.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;
  // Runs the stage's forward. `input` is the output of the stage before, undefined for the first stage.
  // Returns the stage's output; that of the last stage is the loss, a scalar.
  virtual at::Tensor forward(int64_t stage, int64_t micro_batch, const at::Tensor& input) = 0;
  // Has autograd make the gradients. `output` is what forward() returned, `gradient` its gradient, undefined
  // for the last stage.
  virtual void backward(int64_t stage, int64_t micro_batch, const at::Tensor& output,
                        const at::Tensor& gradient) = 0;
  // Returns memory for the input of a stage other than the first, with the shape and type of the output of
  // the stage before. Both ranks must agree on these.
  virtual at::Tensor make_input(int64_t stage, int64_t micro_batch) const = 0;
  // Returns whether anything before the stage is trained. Must be the same on all ranks.
  virtual bool needs_input_gradient(int64_t stage) const = 0;
};

// Runs the actions of rank group.rank() of a schedule without fault (find_fault()). Inputs are received ahead
// of their use and outputs sent in the background, so both overlap with the compute. If backwards are split,
// InputGradient leaves the weight gradients of linear layers (ops/deferred_gradient.h) to WeightGradient; a
// stage that recomputes its activations does so in InputGradient. Returns the sum of the losses over the
// micro-batches, a float64 tensor of one element, on every rank. Collective.
at::Tensor run_schedule(const Schedule& schedule, comm::Communicator& group, PipelineStage& stage);

}  // namespace tessera::parallel
