#include "tessera/optim/optimizer.h"

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/ops/adamw.h"

namespace tessera::optim {
namespace {

// A tile that gets its memory later would never be updated.
void check_tiles(const std::vector<OptimizedTile>& tiles) {
  for (const OptimizedTile& tile : tiles) {
    TESSERA_CHECK_ARGUMENT(
        tile.tile.defined() && !tile.tile.is_meta(),
        "the tile of '" + tile.name + "' has no values; make the optimizer after they are loaded");
  }
}

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedTile> tiles, const AdamWOptions& options)
      : tiles_(std::move(tiles)), options_(options) {
    check_tiles(tiles_);
    const at::NoGradGuard no_grad;
    for (const OptimizedTile& tile : tiles_) {
      exp_avg_.push_back(at::zeros_like(tile.tile.detach()));
      exp_avg_sq_.push_back(at::zeros_like(tile.tile.detach()));
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }

  void step(double lr, double gradient_scale) override {
    ops::AdamWUpdate update;
    update.learning_rate = lr;
    update.beta1 = options_.beta1;
    update.beta2 = options_.beta2;
    update.epsilon = options_.epsilon;
    update.gradient_scale = gradient_scale;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const at::Tensor& gradient = tiles_[i].tile.grad();
      if (!gradient.defined() || tiles_[i].tile.numel() == 0) continue;
      steps_[i].add_(1.0);
      update.step = steps_[i].item<int64_t>();
      update.weight_decay = tiles_[i].weight_decay;
      ops::adamw(tiles_[i].tile.detach(), gradient.detach(), exp_avg_[i], exp_avg_sq_[i], update);
    }
  }

  std::vector<OptimizerState> states() override {
    std::vector<OptimizerState> all;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      all.push_back({tiles_[i].name, "exp_avg", exp_avg_[i]});
      all.push_back({tiles_[i].name, "exp_avg_sq", exp_avg_sq_[i]});
      all.push_back({tiles_[i].name, "step", steps_[i]});
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
  explicit Sgd(std::vector<OptimizedTile> tiles) : tiles_(std::move(tiles)) { check_tiles(tiles_); }

  void step(double lr, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (const OptimizedTile& optimized : tiles_) {
      const at::Tensor& gradient = optimized.tile.grad();
      if (!gradient.defined()) continue;
      const at::Tensor tile = optimized.tile.detach();
      if (optimized.weight_decay != 0.0) tile.mul_(1.0 - lr * optimized.weight_decay);
      tile.add_(gradient.detach(), -lr * gradient_scale);
    }
  }
  std::vector<OptimizerState> states() override { return {}; }

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
