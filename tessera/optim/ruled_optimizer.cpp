#include "tessera/optim/ruled_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/trace.h"
#include "tessera/optim/matrix_owners.h"
#include "tessera/optim/ruled_tile.h"
#include "tessera/optim/tile_states.h"
#include "tessera/optim/tile_totals.h"

namespace tessera::optim {
namespace {

// Values that tiles measure before they are joined, about.
constexpr int64_t kMeasuredAtOnce = int64_t{1} << 22;

// A tile in the course of a step.
struct Pending {
  RuledTile& ruled;
  RuleUpdate update;
  // A tile without elements always has a gradient. If others have elements, it learns from them whether the
  // parameter is updated.
  bool is_updated, is_sure;
  at::Tensor measured;  // of this round: 1 if a tile with elements has a gradient, and what it measures

  Pending(RuledTile& tile, double lr)
      : ruled(tile),
        is_updated(tile.is_held && tile.tile.tile.grad().defined()),
        is_sure(tile.numel() > 0 || tile.groups.empty() || !tile.is_held) {
    update.states = tile.states;
    update.lr = lr * tile.tile.lr_scale;
    update.weight_decay = tile.tile.weight_decay;
    update.step = tile.steps.item<int64_t>() + 1;
    update.parameter = &tile.parameter;
    update.box = &tile.box;
    if (is_sure) begin();
  }

  void begin() {
    if (!is_updated) return;
    ruled.steps.add_(1.0);
    ruled.rule->begin(update);
  }

  void measure(int64_t round, double scale, TileTotals& totals) {
    const int64_t size = ruled.rule->measured_size(round, ruled.parameter);
    const auto options = at::TensorOptions(ruled.tile.tile.device()).dtype(at::kDouble);
    measured = at::zeros({1 + size}, options);
    if (is_updated && ruled.numel() > 0) {
      measured.narrow(0, 0, 1).fill_(1.0);
      if (size > 0) measured.narrow(0, 1, size).copy_(ruled.measure(round, update, scale));
    }
    totals.add(measured, ruled.rule->joined_by(), ruled.groups);
  }

  void take_total(int64_t round) {
    if (!is_sure) {
      is_updated = measured.narrow(0, 0, 1).item<double>() > 0.0;
      is_sure = true;
      begin();
    }
    if (!is_updated) return;
    update.totals.push_back(measured.narrow(0, 1, measured.numel() - 1));
    ruled.rule->absorb(round, update);
  }
};

class RuledOptimizer : public Optimizer {
 public:
  RuledOptimizer(std::vector<OptimizedTile> tiles,
                 const std::function<RulePtr(const RuleParameter&)>& rule_of, uint64_t seed) {
    const at::NoGradGuard no_grad;
    for (OptimizedTile& tile : checked_tiles(std::move(tiles)))
      tiles_.emplace_back(std::move(tile), rule_of, seed);
  }

  void update(const Update& update) override {
    const trace::Scope trace_scope("optimizer rules");
    const at::NoGradGuard no_grad;
    const double device_scale = update.device_scale.defined() ? update.device_scale.item<double>() : 1.0;
    const double scale = update.gradient_scale * device_scale;
    if (std::isnan(scale)) return;
    for (size_t begin = 0; begin < tiles_.size();) {
      std::vector<Pending> batch;
      // Tiles whose rounds run together are joined in few collectives, and what they measure takes bounded
      // memory.
      for (int64_t measured = 0; begin < tiles_.size() && measured < kMeasuredAtOnce; ++begin) {
        if (!update.wants(begin)) continue;
        const RuledTile& ruled = tiles_[begin];
        batch.emplace_back(tiles_[begin], update.lr);
        for (int64_t round = 0; round < ruled.rule->num_rounds(); ++round)
          measured += 1 + ruled.rule->measured_size(round, ruled.parameter);
      }
      run(batch, scale);
    }
  }

  std::vector<checkpoint::StateTensor> states() override {
    std::vector<checkpoint::StateTensor> all;
    for (const RuledTile& ruled : tiles_) {
      const OptimizedTile& tile = ruled.tile;
      for (size_t s = 0; s < ruled.listed.size(); ++s) {
        all.push_back(checkpoint::state_tensor(tile.name + "/" + ruled.listed[s].name, ruled.layout_of(s),
                                               tile.coordinates, ruled.states[s]));
      }
      all.push_back(parameter_state(tile, "step", ruled.steps));
    }
    return all;
  }

  bool has_average() const override {
    return std::ranges::any_of(tiles_, [](const RuledTile& ruled) { return ruled.rule->has_average(); });
  }

  void move_to_average(bool is_average) override {
    if (is_average == std::exchange(is_average_, is_average)) return;
    const at::NoGradGuard no_grad;
    for (const RuledTile& ruled : tiles_) {
      if (!ruled.rule->has_average() || ruled.numel() == 0) continue;
      const at::Tensor value = ruled.tile.tile.detach(), wide = value.to(ruled.parameter.type);
      ruled.rule->move_to_average(is_average, wide, ruled.states);
      if (!wide.is_same(value)) value.copy_(wide);
    }
  }

 private:
  static void run(std::vector<Pending>& batch, double scale) {
    int64_t num_rounds = 0;
    for (const Pending& pending : batch) num_rounds = std::max(num_rounds, pending.ruled.rule->num_rounds());
    for (int64_t round = 0; round < num_rounds; ++round) {
      TileTotals totals;
      const auto takes_part = [&](const Pending& pending) {
        return round < pending.ruled.rule->num_rounds();
      };
      for (Pending& pending : batch) {
        if (takes_part(pending)) pending.measure(round, scale, totals);
      }
      totals.join();
      for (Pending& pending : batch) {
        if (takes_part(pending)) pending.take_total(round);
      }
    }
    std::vector<TiledMatrix> matrices;
    for (Pending& pending : batch) {
      if (pending.ruled.rule->transforms()) {
        matrices.push_back(matrix_of(pending, scale));
      } else if (pending.is_updated) {
        pending.ruled.apply(pending.update, scale);
      }
    }
    transform_matrices(matrices);
  }

  static TiledMatrix matrix_of(Pending& pending, double scale) {
    const RuledTile& ruled = pending.ruled;
    TiledMatrix matrix{ruled.tile.name, ruled.tile.layout, ruled.tile.axes, {}, {}, {}};
    if (!pending.is_updated) return matrix;
    matrix.part = [&pending, &ruled, scale] {
      pending.update.value = ruled.tile.tile.detach();
      pending.update.gradient = ruled.scaled_gradient(scale);
      at::Tensor part = ruled.rule->matrix(pending.update);
      pending.update.value = pending.update.gradient = at::Tensor();
      return part;
    };
    matrix.transform = [&ruled](const at::Tensor& whole) { return ruled.rule->transformed(whole); };
    matrix.take = [&pending, &ruled, scale](const at::Tensor& part) {
      pending.update.totals.push_back(part);
      ruled.apply(pending.update, scale);
      pending.update.totals.pop_back();
    };
    return matrix;
  }

  std::vector<RuledTile> tiles_;
  bool is_average_ = false;  // where the tiles are
};

}  // namespace

std::unique_ptr<Optimizer> make_ruled(std::vector<OptimizedTile> tiles,
                                      const std::function<RulePtr(const RuleParameter&)>& rule_of,
                                      uint64_t seed) {
  return std::make_unique<RuledOptimizer>(std::move(tiles), rule_of, seed);
}

}  // namespace tessera::optim
