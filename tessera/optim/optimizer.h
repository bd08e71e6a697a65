// Optimizers over tiles: each rank updates the rows that it owns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::optim {

// A tile to update. `tile.grad()` holds its gradient at step(); a tile without one is left alone. One without
// values is refused with Error(Config).
struct OptimizedTile {
  std::string name;
  at::Tensor tile;
  double weight_decay = 0.0;
};

// A state tensor of a tile, which a checkpoint stores: of the tile's shape ("exp_avg", "exp_avg_sq"), or a
// scalar of the whole parameter ("step").
struct OptimizerState {
  std::string tile;  // the tile's name
  std::string state;
  at::Tensor value;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update with learning rate `lr`. Every gradient is multiplied by `gradient_scale` first (the clip
  // factor); the gradients themselves may be changed by it.
  virtual void step(double lr, double gradient_scale) = 0;
  // The states, in a fixed order; they alias the optimizer's own.
  virtual std::vector<OptimizerState> states() = 0;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019,
// algorithm 2), as torch.optim.AdamW computes it. States in the tile's type.
std::unique_ptr<Optimizer> make_adamw(std::vector<OptimizedTile> tiles, const AdamWOptions& options);

// Plain gradient descent with coupled weight decay, as torch.optim.SGD without momentum.
std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedTile> tiles);

}  // namespace tessera::optim
