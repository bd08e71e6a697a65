// Updates each unit of the model as soon as its gradients are complete, within the backward.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/optim/gradient_norm.h"
#include "tessera/optim/optimizer.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// While one lives, the step's last backward updates the tiles of each unit when their gradients are complete,
// and drops these gradients, so that those of two units live at most. The model was cut with
// ShardOptions::reports_gradients; the optimizer was made from optimized_tiles(). Collective where the
// optimizer is.
class BackwardUpdates {
 public:
  // References the arguments, which outlive the object.
  BackwardUpdates(TrainedModel& trained, optim::Optimizer& optimizer, double lr);
  ~BackwardUpdates();
  BackwardUpdates(const BackwardUpdates&) = delete;
  BackwardUpdates& operator=(const BackwardUpdates&) = delete;

  // Returns the norm of all gradients that there were, once the backward is over. Collective.
  optim::PendingNorm norm() const;

 private:
  void update(const std::vector<size_t>& parameters);

  TrainedModel& trained_;
  optim::Optimizer& optimizer_;
  const double lr_;
  std::vector<size_t> tile_of_;      // by parameter: its number among those that train
  std::vector<at::Tensor> squares_;  // by tile: the sum of squares of its gradient, undefined without one
};

}  // namespace tessera::train
