// Makes one optimizer step over the micro-batches of all ranks.
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
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

struct StepInput {
  const std::vector<data::MicroBatch>* micro_batches = nullptr;  // this rank's
  int64_t label_tokens = 1;  // of the whole step, over all ranks and micro-batches
  int64_t step = 0;          // 0-based number of the step
  double lr = 0.0;
  double max_grad_norm = 0.0;
  uint64_t seed = 0;
  double loss_scale = 1.0;           // factor on the loss in the backward; gradients are divided by it
  bool skips_overflow = false;       // a step that is not finite makes no update, instead of throwing
  bool updates_in_backward = false;  // BackwardUpdates; without clipping, loss scale and `accepts`
  bool measures_noise = false;       // of the gradient, if this rank has several micro-batches; not with
                                     // updates_in_backward
  int64_t num_datasets = 0;          // datasets that the micro-batches name; 0 for none
  // Decides before the update whether to make it, on every rank with the same numbers. Empty: the update is
  // always made; without skips_overflow it is then submitted before the host has read the numbers.
  std::function<bool(double loss, double grad_norm)> accepts;
};

struct StepResult {
  double loss = 0.0;       // mean over the label tokens of the step
  double grad_norm = 0.0;  // before clipping
  bool is_finite = true;
  bool is_updated = true;
  std::vector<double> dataset_losses;   // sum over the label tokens of each dataset
  std::optional<RouterValues> routers;  // unset unless the loss asks for them
  std::optional<GradientNoise> noise;   // unset unless it was measured
};

// Runs forward and backward of every micro-batch with the loss divided by the step's label tokens, then makes
// one update. The result does not depend on how the micro-batches are spread over the ranks. Throws
// Error(Numerics) on every rank alike when the loss or the gradient is not finite, naming rank and tensor; no
// tile has changed then, except with updates_in_backward. With skips_overflow the result says so instead.
// Collective.
StepResult run_step(TrainedModel& trained, optim::Optimizer& optimizer, const parallel::DeviceMesh& mesh,
                    const StepInput& input);

// Returns the mean loss over the label tokens, and the metrics of a classifier, of one epoch of `loader`,
// over all ranks, and makes no gradients. Calls `on_step` with the number of the epoch's steps that are done;
// where that returns false, on all ranks alike, the evaluation ends and returns nothing. Collective.
std::optional<Evaluated> evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                                  data::Loader& loader, const std::function<bool(int64_t done)>& on_step);

// Returns the tiles that train. Norms and biases have no weight decay unless `decay_all`.
std::vector<optim::OptimizedTile> optimized_tiles(const parallel::ShardedModel& sharded, double weight_decay,
                                                  bool decay_all);

// Returns the options that the recipe gives for AdamW.
optim::AdamWOptions adamw_options(const config::Recipe& recipe);
// Returns the place of states on a drive; nothing where the recipe keeps them elsewhere.
std::optional<optim::SpillPlace> spill_place(const config::OffloadConfig& keys);

}  // namespace tessera::train
