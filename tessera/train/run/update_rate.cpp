#include "tessera/train/run/update_rate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tessera/config/optimizer_rules.h"
#include "tessera/core/process_stats.h"
#include "tessera/device/device.h"
#include "tessera/optim/optimizers.h"
#include "tessera/train/step/step.h"

namespace tessera::train {
namespace {

// A sample has at most so many rows and columns: it does not fit a core's cache, and takes little time.
constexpr int64_t kMostRows = 512, kMostColumns = 2048;
constexpr int kUpdates = 3;  // the first one is not counted

// Says whether the time of a matrix grows with its smaller size too, since it is multiplied by itself.
bool multiplies_itself(OptimizerKind kind) {
  return kind == OptimizerKind::Muon || kind == OptimizerKind::MuonJordan || kind == OptimizerKind::MuonTorch;
}

std::unique_ptr<optim::Optimizer> make_sample(const config::Recipe& recipe, const at::Tensor& tile) {
  std::vector<optim::OptimizedTile> tiles = {{.name = "sample", .tile = tile, .is_target = true}};
  if (recipe.optimizer == OptimizerKind::AdamW) {
    optim::AdamWOptions options = adamw_options(recipe);
    options.spill.reset();
    return optim::make_adamw(std::move(tiles), options);
  }
  return optim::make_optimizer(recipe.optimizer, std::move(tiles), config::optimizer_options(recipe), 0);
}

}  // namespace

double seconds_of_update(const config::Recipe& recipe, const planner::ModelWork& work) {
  const bool is_narrow = recipe.pure_bf16 || recipe.optimizer_state_dtype == config::StateType::BFloat16;
  if (work.block.empty() || (recipe.optimizer == OptimizerKind::AdamW && !is_narrow)) return 0.0;
  const auto& matrix =
      *std::max_element(work.block.begin(), work.block.end(),
                        [](const auto& a, const auto& b) { return a.parameters() < b.parameters(); });
  const auto small = static_cast<int64_t>(std::min(matrix.in, matrix.out)),
             large = static_cast<int64_t>(std::max(matrix.in, matrix.out));
  const int64_t rows = std::min(small, kMostRows), columns = std::min(large, kMostColumns);
  const auto options = on_host(recipe.pure_bf16 ? at::kBFloat16 : at::kFloat);
  // The numbers leave the process's own generator as it is.
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor tile = at::randn({rows, columns}, generator, options).requires_grad_();
  const auto optimizer = make_sample(recipe, tile);
  double least = std::numeric_limits<double>::max();
  for (int update = 0; update < kUpdates; ++update) {
    tile.mutable_grad() = at::randn({rows, columns}, generator, options);
    const Timer timer;
    optimizer->step(1e-4, 1.0);
    if (update > 0) least = std::min(least, timer.seconds());
  }
  const double growth =
      multiplies_itself(recipe.optimizer) ? static_cast<double>(small) / static_cast<double>(rows) : 1.0;
  return growth * least / static_cast<double>(rows * columns);
}

}  // namespace tessera::train
