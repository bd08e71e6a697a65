// Looks at the evaluation data as often as the recipe says.
#pragma once

#include <functional>
#include <utility>

#include "tessera/data/loader.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/training.h"

namespace tessera::train {

class Evaluation : public Reporter {
 public:
  using Tell = std::function<void(const std::function<void(Reporter&)>&)>;

  // `tell` calls all reporters of this rank. What is given by reference outlives this.
  // Throws what deciding_loss() throws of the datasets that `loader` deals.
  Evaluation(Training& training, const parallel::DeviceMesh& mesh, data::Loader loader, Tell tell);

  // Collective. Throws Error(Numerics) where the loss is not finite.
  void after_step(const TrainState& state) override;

 private:
  Training& training_;
  const parallel::DeviceMesh& mesh_;
  data::Loader loader_;
  Tell tell_;
};

}  // namespace tessera::train
