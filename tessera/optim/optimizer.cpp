#include "tessera/optim/optimizer.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/device.h"
#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/ops/adamw.h"

namespace tessera::optim {
namespace {

// A tile that gets its memory later would never be updated.
std::vector<OptimizedTile> checked(std::vector<OptimizedTile> tiles) {
  for (OptimizedTile& tile : tiles) {
    TESSERA_CHECK_ARGUMENT(
        tile.tile.defined() && !tile.tile.is_meta(),
        "the tile of '" + tile.name + "' has no values; make the optimizer after they are loaded");
    const std::vector<int64_t> shape = tile.tile.sizes().vec();
    if (tile.layout.axes().empty()) tile.layout = {shape, to_dtype(tile.tile.scalar_type()), {}};
    TESSERA_ASSERT(tile.layout.local_box(tile.coordinates).size == shape, "a tile has the shape of its box");
  }
  return tiles;
}

// A state of every element of the tile's parameter.
checkpoint::StateTensor element_state(const OptimizedTile& tile, const std::string& state,
                                      const at::Tensor& values) {
  return checkpoint::state_tensor(
      tile.name + "/" + state,
      parallel::Layout(tile.layout.shape(), to_dtype(values.scalar_type()), tile.layout.axes()),
      tile.coordinates, values);
}

// One value of the whole parameter, which those ranks have that hold a part of it.
checkpoint::StateTensor parameter_state(const OptimizedTile& tile, const std::string& state,
                                        const at::Tensor& value) {
  std::vector<parallel::AxisPlacement> axes = tile.layout.axes();
  for (parallel::AxisPlacement& axis : axes) {
    if (axis.placement.kind == parallel::Placement::Kind::Shard)
      axis.placement = parallel::Placement::replicate();
  }
  const parallel::Layout layout({1}, to_dtype(value.scalar_type()), std::move(axes));
  const int64_t held = layout.local_box(tile.coordinates).size[0];
  return checkpoint::state_tensor(tile.name + "/" + state, layout, tile.coordinates,
                                  value.narrow(0, 0, held));
}

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedTile> tiles, const AdamWOptions& options)
      : tiles_(checked(std::move(tiles))), options_(options) {
    const at::NoGradGuard no_grad;
    for (const OptimizedTile& tile : tiles_) {
      exp_avg_.push_back(at::zeros_like(tile.tile.detach()));
      exp_avg_sq_.push_back(at::zeros_like(tile.tile.detach()));
      steps_.push_back(at::zeros({1}, on_host(at::kFloat)));
    }
  }

  void step(double lr, double gradient_scale) override {
    std::vector<ops::AdamWTensors> all;
    ops::AdamWUpdate update;
    update.beta1 = options_.beta1;
    update.beta2 = options_.beta2;
    update.epsilon = options_.epsilon;
    update.gradient_scale = gradient_scale;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const at::Tensor& gradient = tiles_[i].tile.grad();
      if (!gradient.defined()) continue;
      steps_[i].add_(1.0);
      if (tiles_[i].tile.numel() == 0) continue;
      update.step = steps_[i].item<int64_t>();
      update.learning_rate = lr * tiles_[i].lr_scale;
      update.weight_decay = tiles_[i].weight_decay;
      all.push_back({tiles_[i].tile.detach(), gradient.detach(), exp_avg_[i], exp_avg_sq_[i], update});
    }
    ops::adamw(all);
  }

  std::vector<checkpoint::StateTensor> states() override {
    std::vector<checkpoint::StateTensor> all;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      all.push_back(element_state(tiles_[i], "exp_avg", exp_avg_[i]));
      all.push_back(element_state(tiles_[i], "exp_avg_sq", exp_avg_sq_[i]));
      all.push_back(parameter_state(tiles_[i], "step", steps_[i]));
    }
    return all;
  }

 private:
  std::vector<OptimizedTile> tiles_;
  AdamWOptions options_;
  std::vector<at::Tensor> exp_avg_, exp_avg_sq_, steps_;
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<OptimizedTile> tiles) : tiles_(checked(std::move(tiles))) {}

  void step(double lr, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (const OptimizedTile& optimized : tiles_) {
      const at::Tensor& gradient = optimized.tile.grad();
      if (!gradient.defined()) continue;
      const at::Tensor tile = optimized.tile.detach();
      const double own_lr = lr * optimized.lr_scale;
      if (optimized.weight_decay != 0.0) tile.mul_(1.0 - own_lr * optimized.weight_decay);
      tile.add_(gradient.detach(), -own_lr * gradient_scale);
    }
  }
  std::vector<checkpoint::StateTensor> states() override { return {}; }

 private:
  std::vector<OptimizedTile> tiles_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<OptimizedTile> tiles, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(tiles), options);
}

std::unique_ptr<Optimizer> make_sgd(std::vector<OptimizedTile> tiles) {
  return std::make_unique<Sgd>(std::move(tiles));
}

}  // namespace tessera::optim
