// Measures how much of a step's gradient is noise: the gradient noise scale.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/data/batch.h"
#include "tessera/optim/gradient_norm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

// The gradient of the first micro-batches of a step, beside which those of the others are computed. It takes
// the memory of one more gradient of this rank's tiles.
class FirstGradient {
 public:
  // Takes the gradients of all trained tiles, which have none then, and starts the sum of their squares.
  // `micro_batches` are those of this rank that made them. Collective.
  FirstGradient(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                const std::vector<data::MicroBatch>& micro_batches);
  // Adds them to the gradients that the tiles have now.
  void add_back();
  // Returns the sum of squares and the label tokens of all ranks' micro-batches: [2], float64, on the mesh's
  // device.
  const at::Tensor& numbers() const { return numbers_; }

 private:
  TrainedModel& trained_;
  std::vector<at::Tensor> gradients_;  // by parameter; undefined where there was none
  at::Tensor numbers_;
};

// Returns the estimates for a step (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018,
// appendix A.1): of a gradient whose square is `first_square` for `first_tokens` label tokens, and the whole
// one for `tokens`, both of the mean loss over their tokens. Nothing where one part has no tokens.
std::optional<GradientNoise> gradient_noise(double first_square, double first_tokens, double square,
                                            double tokens);

}  // namespace tessera::train
