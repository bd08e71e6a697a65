#include "tessera/optim/optimizer.h"

#include <map>

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::optim {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedTile> tiles, const AdamWOptions& options)
      : tiles_(std::move(tiles)), options_(options) {
    const at::NoGradGuard no_grad;
    for (const OptimizedTile& tile : tiles_) {
      exp_avg_.push_back(at::zeros_like(tile.tile.detach()));
      exp_avg_sq_.push_back(at::zeros_like(tile.tile.detach()));
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }

  void step(double lr, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    // LibTorch updates lists of one decay and type at a time.
    struct Lists {
      std::vector<at::Tensor> tiles, gradients, exp_avg, exp_avg_sq, steps;
    };
    std::map<std::pair<double, at::ScalarType>, Lists> by_decay;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const at::Tensor& gradient = tiles_[i].tile.grad();
      if (!gradient.defined() || tiles_[i].tile.numel() == 0) continue;
      Lists& lists = by_decay[{tiles_[i].weight_decay, tiles_[i].tile.scalar_type()}];
      lists.tiles.push_back(tiles_[i].tile.detach());
      lists.gradients.push_back(gradient.detach());
      lists.exp_avg.push_back(exp_avg_[i]);
      lists.exp_avg_sq.push_back(exp_avg_sq_[i]);
      steps_[i].add_(1.0);
      lists.steps.push_back(steps_[i]);
    }
    for (auto& [key, lists] : by_decay) {
      // LibTorch divides by a float32 number on the way, which would not do for wider gradients.
      std::optional<at::Tensor> divisor;
      if (gradient_scale != 1.0 && key.second == at::kFloat) {
        divisor = at::full({}, 1.0 / gradient_scale);
      } else if (gradient_scale != 1.0) {
        for (at::Tensor& gradient : lists.gradients) gradient.mul_(gradient_scale);
      }
      at::_fused_adamw_(lists.tiles, lists.gradients, lists.exp_avg, lists.exp_avg_sq, {}, lists.steps, lr,
                        options_.beta1, options_.beta2, key.first, options_.epsilon, /*amsgrad=*/false,
                        /*maximize=*/false, divisor);
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
  explicit Sgd(std::vector<OptimizedTile> tiles) : tiles_(std::move(tiles)) {}

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
