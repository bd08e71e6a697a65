// Running a pipeline schedule.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/pipeline/schedule.h"

namespace tessera::parallel {

// What a rank computes in a stage that it holds, on a micro-batch.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;
  // `input`: the output of the stage before; undefined for the first. The last one's output is the loss, a
  // scalar.
  virtual at::Tensor forward(int64_t stage, int64_t micro_batch, const at::Tensor& input) = 0;
  // Has autograd make the gradients. `gradient`: of `output`, which forward() returned; undefined for the
  // last stage.
  virtual void backward(int64_t stage, int64_t micro_batch, const at::Tensor& output,
                        const at::Tensor& gradient) = 0;
  // Memory for the input of a stage but the first: the shape and type of what the stage before gives. The
  // same on both ranks.
  virtual at::Tensor make_input(int64_t stage, int64_t micro_batch) const = 0;
  // Whether anything before the stage is trained. The same on all ranks.
  virtual bool needs_input_gradient(int64_t stage) const = 0;
};

// Runs the actions of rank group.rank() of a schedule without fault. Inputs are received ahead of their use
// and outputs sent behind it, so both overlap with the compute. Where a backward is split, InputGradient
// leaves the weight gradients of linear layers (ops/deferred_gradient.h) to WeightGradient; a stage that
// recomputes its activations does so in InputGradient. Returns the sum of the losses over the micro-batches,
// a float64 tensor of one element, on every rank. Collective.
at::Tensor run_schedule(const Schedule& schedule, comm::Communicator& group, PipelineStage& stage);

}  // namespace tessera::parallel
