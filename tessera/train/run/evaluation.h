// Evaluates as often as the recipe says.
#pragma once

#include <functional>
#include <utility>

#include "tessera/data/loader.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

class Evaluation {
 public:
  using Tell = std::function<void(const std::function<void(Reporter&)>&)>;

  // `tell` calls a function with each reporter of this rank. `goes_on`, which is called as an evaluation
  // goes, may end it by returning false, on all ranks alike. `training` and `mesh` outlive this object.
  // Throws what deciding_loss() throws for the datasets that `loader` deals, so that a wrong
  // metric_for_best_model shows before the first step.
  Evaluation(Training& training, const parallel::DeviceMesh& mesh, data::Loader loader, Tell tell,
             std::function<bool()> goes_on);

  // Evaluates if the recipe says so after this step. Returns false where `goes_on` ended that. Collective.
  // Throws Error(Numerics) where the loss is not finite.
  bool after_step();

 private:
  Training& training_;
  const parallel::DeviceMesh& mesh_;
  data::Loader loader_;
  Tell tell_;
  std::function<bool()> goes_on_;
};

}  // namespace tessera::train
