// The losses and gradients of a rank's micro-batches, whatever runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/sequence.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// The micro-batch as the ranks along tp run it: a last document of tokens without labels makes their number a
// multiple of `multiple`, and at least that, so that every rank takes part in every collective.
nn::TokenBatch to_tensors(data::MicroBatch batch, int64_t multiple = 1);

// What is asked for beside the loss, to be added to; undefined where it is not.
struct LossParts {
  // Sums of the losses of each dataset that the micro-batches name, float64 on the mesh's device.
  at::Tensor datasets = {};
  // nn::TokenBatch::router_values.
  at::Tensor routers = {};
};

// The micro-batches that this rank and those along cp, tp and pp read, one after the other, or through the
// pipeline. Both return the sum of the losses over the label tokens of this rank's part, a float64 tensor of
// one element. Collective.
//
// With the gradients of `scale` times the loss: tile.grad() of every trained parameter is complete
// afterwards.
at::Tensor forward_backward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                            const std::vector<data::MicroBatch>& micro_batches, double scale,
                            const std::function<nn::RandomPlace(int64_t micro_batch)>& random_place,
                            const LossParts& parts = {});
at::Tensor forward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                   const std::vector<data::MicroBatch>& micro_batches, const LossParts& parts = {});

// How many micro-batches forward() should be given at once, so that the ranks along pp work side by side.
int64_t micro_batches_at_once(const parallel::DeviceMesh& mesh);

}  // namespace tessera::train
