// Computes the losses and gradients of a rank's micro-batches, by a plain loop or through a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/sequence.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// Returns the micro-batch with `count` tokens before each of its documents, whose ids count from `first_id`
// on. They have no labels, and the positions of the others begin behind them. The first token of a document
// has no label here, so the last virtual token does not learn to predict it, unlike in PEFT.
data::MicroBatch with_virtual_tokens(const data::MicroBatch& batch, int64_t count, int64_t first_id);

// Returns the micro-batch as the ranks along tp run it: [tokens] int64 tensors on the host. A last document
// of tokens without labels makes the number of tokens a multiple of `multiple`, and at least that, so that
// every rank takes part in every collective.
nn::TokenBatch to_tensors(data::MicroBatch batch, int64_t multiple = 1);

// Sums that are asked for beside the loss, to which a pass adds; undefined where they are not asked for.
struct LossParts {
  // [datasets] or [2, datasets]: ops::LossSources::losses, by the datasets that the micro-batches name;
  // float64 on the mesh's device.
  at::Tensor datasets = {};
  // [2], float64: nn::TokenBatch::router_values.
  at::Tensor routers = {};
  // nn::TokenBatch::statistics.
  at::Tensor statistics = {};
};

// Both functions run the micro-batches that this rank and those along cp, tp and pp read, one after another
// or through the pipeline. Both return the sum of the losses over the label tokens of this rank's part, [1]
// in float64 on the device, on every rank along pp. Collective.
//
// forward_backward() also computes the gradients of `scale` times the loss: tile.grad() of every trained
// parameter is complete afterwards. `random_place` gives the place of a micro-batch for dropout and noise.
// forward() makes no gradients.
at::Tensor forward_backward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                            const std::vector<data::MicroBatch>& micro_batches, double scale,
                            const std::function<nn::RandomPlace(int64_t micro_batch)>& random_place,
                            const LossParts& parts = {});
at::Tensor forward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                   const std::vector<data::MicroBatch>& micro_batches, const LossParts& parts = {});

// Returns how many micro-batches forward() should get at once, so that the ranks along pp work side by side.
int64_t micro_batches_at_once(const parallel::DeviceMesh& mesh);

}  // namespace tessera::train
