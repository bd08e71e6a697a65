// Optimizers over tiles: each rank updates what it owns of every parameter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/parallel/layout.h"

namespace tessera::optim {

// A tile to update. `tile.grad()` holds its gradient at step(), on the device where it is updated; a tile
// without one is left alone. One without values is refused with Error(Config).
struct OptimizedTile {
  std::string name;  // of the parameter
  at::Tensor tile;
  double weight_decay = 0.0;
  // Of the parameter, and where this rank stands on its axes. Left out: the tile is all of it.
  parallel::Layout layout = {};
  std::vector<int64_t> coordinates = {};
  double lr_scale = 1.0;  // its learning rate over that of step()
  // Where it is updated, if it lies elsewhere: in pinned memory, read and written in the order of the
  // device's current stream (parallel::ShardOptions::offload_parameters). Of all tiles, or of none.
  std::optional<c10::Device> updated_on = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update with learning rate `lr`. Every gradient is multiplied by `gradient_scale` first (the clip
  // factor); the gradients themselves may be changed by it. device_scale: a further factor, a scalar in
  // float64 on the tiles' device, for which nobody waits; NaN: tiles stay as they are. Undefined: 1.
  virtual void step(double lr, double gradient_scale, const at::Tensor& device_scale = {}) = 0;
  // What it keeps of the tiles' parameters between steps, as "<parameter>/<state>": values of the parameter's
  // shape and layout ("exp_avg", "exp_avg_sq"), or one value that all its holders have alike ("step"). In a
  // fixed order, the same on all ranks.
  virtual std::vector<checkpoint::StateTensor> states() = 0;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  // Above 0: the states lie on the host, on the device those of so many elements at a time
  // (offloaded_states.h). Nothing where tiles are updated on the host; those of tiles that lie in pinned
  // memory are always offloaded.
  int64_t offload_chunk_elements = 0;
  // Whether the states are kept in bfloat16, stochastically rounded, and bfloat16 tiles are rounded so too
  // (ops::AdamWRounding): the random bits are a function of the seed, the update's number, the names of
  // parameter and state and an element's place in the whole parameter, so that any layout has the same
  // states.
  bool has_bf16_states = false;
  uint64_t seed = 0;  // of the rounding
};

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019,
// algorithm 2), as torch.optim.AdamW computes it. States in the tile's type, unless the options say
// otherwise.
std::unique_ptr<Optimizer> make_adamw(std::vector<OptimizedTile> tiles, const AdamWOptions& options);

// Plain gradient descent with coupled weight decay, as torch.optim.SGD without momentum.
std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedTile> tiles);

}  // namespace tessera::optim
