// Optimizers over tiles: each rank updates what it owns of every parameter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/io/spill_file.h"
#include "tessera/nn/parameter_role.h"
#include "tessera/nn/row_blocks.h"
#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::optim {

// A tile to update. At an update `tile.grad()` holds its gradient, on the device that updates the tile; a
// tile without a gradient is left alone. A tile without values is refused with Error(Config).
struct OptimizedTile {
  std::string name;  // of the parameter
  at::Tensor tile;
  double weight_decay = 0.0;
  // Layout of the parameter, and the coordinates of this rank on its axes. Left out where the tile is the
  // whole parameter.
  parallel::Layout layout = {};
  std::vector<int64_t> coordinates = {};
  double lr_scale = 1.0;  // factor on the learning rate of step() for this tile
  // The device that updates the tile; unset, the one on which it lies. A tile that lies elsewhere lies in
  // pinned memory, which is then read and written in the order of the device's current stream
  // (parallel::ShardOptions::offload_parameters). That holds for all tiles of an optimizer or for none.
  std::optional<c10::Device> updated_on = {};
  nn::ParameterRole role = nn::ParameterRole::Other;
  // This rank's groups along the axes of `layout`, for rules that look at more of the parameter than a tile.
  std::vector<parallel::RankAxis> axes = {};
  nn::RowBlocks row_blocks = {};  // of a matrix
  // Says whether a rule for some matrices is for this one; unset where the rule has to know by itself.
  std::optional<bool> is_target = {};
};

// One update of tiles.
struct Update {
  double lr = 0.0;  // learning rate
  // Every gradient is first multiplied by this (the clip factor), possibly in place.
  double gradient_scale = 1.0;
  // A further factor, a scalar in float64 on the device that updates the tiles, for which the host does not
  // wait: where it is NaN, the tiles stay as they are; undefined, it counts as 1. (The rules of rule.h do
  // wait for it.)
  at::Tensor device_scale = {};
  // Says, by index, which of the optimizer's tiles are updated, the same on all ranks; empty for all.
  std::vector<bool> wanted = {};

  bool wants(size_t tile) const { return wanted.empty() || wanted[tile]; }
};

// Names the place of states that neither the device nor the host holds (spilled_states.h).
struct SpillPlace {
  std::string folder;  // on a local drive; made where it is missing
  // States come into memory in blocks of so many bytes, for so many of which there is memory: at least 2.
  int64_t block_bytes = int64_t{16} << 20, buffer_count = 4;
  io::SpillOptions file = {};
};

// Bytes that this rank's updates have moved from and to the drive, and their seconds: those that they waited
// for it, and all.
struct StateTraffic {
  int64_t bytes_read = 0, bytes_written = 0;
  double wait_s = 0.0, update_s = 0.0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void update(const Update& update) = 0;
  void step(double lr, double gradient_scale, const at::Tensor& device_scale = {}) {
    update({lr, gradient_scale, device_scale, {}});
  }
  // Returns what the optimizer keeps of each parameter between steps, as "<parameter>/<state>": values of the
  // parameter's shape and layout ("exp_avg", "exp_avg_sq"), or one value that all holders of the parameter
  // have alike ("step"). The order is fixed and the same on all ranks.
  virtual std::vector<checkpoint::StateTensor> states() = 0;
  // Returns what has been moved since the optimizer was made; nothing where no states lie on a drive.
  virtual std::optional<StateTraffic> traffic() const { return std::nullopt; }

  // Says that gradients are taken at other values than those to evaluate and to save. move_to_average(true)
  // gives the tiles the latter, and move_to_average(false) leads them back ahead of the next step(); tiles
  // that are where they are to go stay as they are. Values and states are saved and loaded as they are at the
  // average.
  virtual bool has_average() const { return false; }
  virtual void move_to_average(bool /*is_average*/) {}
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  // Above 0, the states lie on the host in chunks of so many elements, which come to the device in turn
  // (offloaded_states.h). Has no effect where tiles are updated on the host; the states of tiles that lie in
  // pinned memory are always offloaded.
  int64_t offload_chunk_elements = 0;
  // If set, the states lie on a drive, wherever tiles are updated; the tiles lie on the device that updates
  // them.
  std::optional<SpillPlace> spill = {};
  // Keeps the states in bfloat16, stochastically rounded, and rounds bfloat16 tiles so, too
  // (ops::AdamWRounding). The random bits are a function of the seed, the number of the update, the names of
  // parameter and state, and the place of an element in the whole parameter, so that any layout gives the
  // same states.
  bool has_bf16_states = false;
  uint64_t seed = 0;  // of the random bits for rounding
};

// Makes Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization",
// 2019, algorithm 2), as torch.optim.AdamW computes it. The states have the dtype of their tile, unless the
// options say otherwise.
std::unique_ptr<Optimizer> make_adamw(std::vector<OptimizedTile> tiles, const AdamWOptions& options);

// Makes plain gradient descent with coupled weight decay, as torch.optim.SGD without momentum. It keeps no
// states.
std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedTile> tiles);

}  // namespace tessera::optim
