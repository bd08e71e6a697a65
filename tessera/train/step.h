// One optimizer step over the micro-batches of all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/data/loader.h"
#include "tessera/nn/sequence.h"
#include "tessera/optim/optimizer.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/metrics.h"
#include "tessera/train/setup.h"

namespace tessera::train {

struct StepInput {
  const std::vector<data::MicroBatch>* micro_batches = nullptr;  // this rank's
  int64_t label_tokens = 1;  // of the whole step, over all ranks and micro-batches
  int64_t step = 0;          // 0-based number of the update
  double lr = 0.0;
  double max_grad_norm = 0.0;
  uint64_t seed = 0;
  double loss_scale = 1.0;      // of the backward; the gradients are divided by it before their use
  bool skips_overflow = false;  // a step that is not finite makes no update, rather than throwing
  int64_t num_datasets = 0;     // that the micro-batches name
  // Asked before the update, on every rank with the same numbers: whether to make it. Empty: always; the
  // update is then on its way before the host has read the numbers, but with skips_overflow.
  std::function<bool(double loss, double grad_norm)> accepts;
};

struct StepResult {
  double loss = 0.0;       // mean over the label tokens of the step
  double grad_norm = 0.0;  // before clipping
  bool is_finite = true;
  bool is_updated = true;
  std::vector<double> dataset_losses;   // sums over the label tokens of each
  std::optional<RouterValues> routers;  // where the loss asks for them
};

// Forward and backward of every micro-batch with the loss divided by the step's label tokens, then one
// update. The result does not depend on how the micro-batches are spread. Throws Error(Numerics) when the
// loss or the gradient is not finite, naming rank and tensor, on every rank alike, and no tile has changed;
// with skips_overflow it says so in the result instead. Collective.
StepResult run_step(TrainedModel& trained, optim::Optimizer& optimizer, const parallel::DeviceMesh& mesh,
                    const StepInput& input);

struct Evaluated {
  double loss = 0.0;
  std::vector<DatasetLoss> datasets;  // where there are several
};

// Mean loss over the label tokens of one epoch of `loader`, over all ranks, without gradient. `on_step` is
// told how many of the epoch's steps are done. Collective.
Evaluated evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh, data::Loader& loader,
                   const std::function<void(int64_t done)>& on_step);

// The tiles that train, with the recipe's decay: none on norms and biases unless `decay_all`.
std::vector<optim::OptimizedTile> optimized_tiles(const parallel::ShardedModel& sharded, double weight_decay,
                                                  bool decay_all);

// With the recipe's constants.
optim::AdamWOptions adamw_options(const config::Recipe& recipe);

}  // namespace tessera::train
