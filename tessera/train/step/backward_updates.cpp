#include "tessera/train/step/backward_updates.h"

#include <ATen/ATen.h>

#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/sum_of_squares.h"
#include "tessera/train/setup/freeze.h"

namespace tessera::train {

BackwardUpdates::BackwardUpdates(TrainedModel& trained, optim::Optimizer& optimizer, double lr)
    : trained_(trained), optimizer_(optimizer), lr_(lr) {
  size_t num_tiles = 0;
  for (const parallel::ShardedParameter& parameter : trained.sharded->parameters())
    tile_of_.push_back(parameter.requires_grad ? num_tiles++ : 0);
  squares_.resize(num_tiles);
  trained.sharded->set_gradient_listener(
      [this](const std::vector<size_t>& parameters) { update(parameters); });
}

BackwardUpdates::~BackwardUpdates() { trained_.sharded->set_gradient_listener({}); }

optim::PendingNorm BackwardUpdates::norm() const { return optim::PendingNorm(*trained_.sharded, squares_); }

void BackwardUpdates::update(const std::vector<size_t>& parameters) {
  const at::NoGradGuard no_grad;
  const trace::Scope trace_scope("optimizer");
  const SectionScope section(StepSection::Optimizer);
  const MemoryScope memory(MemoryCategory::OptimizerState);
  clear_frozen_rows(trained_.trained_rows, *trained_.sharded);
  optim::Update update;
  update.lr = lr_;
  update.wanted.assign(squares_.size(), false);
  std::vector<at::Tensor> gradients;
  std::vector<size_t> tiles;
  for (const size_t i : parameters) {
    update.wanted[tile_of_[i]] = true;
    const at::Tensor& gradient = trained_.sharded->parameters()[i].tile.grad();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    gradients.push_back(gradient);
    tiles.push_back(tile_of_[i]);
  }
  const std::vector<at::Tensor> squares = ops::sums_of_squares(gradients);
  for (size_t i = 0; i < tiles.size(); ++i) squares_[tiles[i]] = squares[i];
  gradients.clear();
  optimizer_.update(update);
  for (const size_t i : parameters) trained_.sharded->parameters()[i].tile.mutable_grad().reset();
}

}  // namespace tessera::train
