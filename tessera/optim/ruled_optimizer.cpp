#include "tessera/optim/ruled_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/trace.h"
#include "tessera/optim/matrix_owners.h"
#include "tessera/optim/ruled_states.h"
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
  size_t number;  // of the tile among all
  RuleUpdate update;
  // A tile without elements always has a gradient. If others have elements, it learns from them whether the
  // parameter is updated.
  bool is_updated, is_sure;
  at::Tensor measured;  // of this round: 1 if a tile with elements has a gradient, and what it measures

  Pending(RuledTile& tile, size_t number_of_tile, double lr)
      : ruled(tile),
        number(number_of_tile),
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

  bool takes_part(int64_t round) const { return round < ruled.rule->num_rounds(); }
  bool is_measured(int64_t round) const {
    return takes_part(round) && is_updated && ruled.numel() > 0 &&
           ruled.rule->measured_size(round, ruled.parameter) > 0;
  }
  bool is_applied(bool transforms) const {
    return is_updated && ruled.numel() > 0 && ruled.rule->transforms() == transforms;
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
                 const std::function<RulePtr(const RuleParameter&)>& rule_of, uint64_t seed,
                 const std::optional<SpillPlace>& spill) {
    const at::NoGradGuard no_grad;
    for (OptimizedTile& tile : checked_tiles(std::move(tiles)))
      tiles_.emplace_back(std::move(tile), rule_of, seed, !spill.has_value());
    if (spill) states_ = RuledStates(tiles_, *spill);
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
        batch.emplace_back(tiles_[begin], begin, update.lr);
        for (int64_t round = 0; round < ruled.rule->num_rounds(); ++round)
          measured += 1 + ruled.rule->measured_size(round, ruled.parameter);
      }
      run(batch, scale);
    }
  }

  std::vector<checkpoint::StateTensor> states() override {
    std::vector<checkpoint::StateTensor> all;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const OptimizedTile& tile = tiles_[i].tile;
      for (size_t s = 0; s < tiles_[i].listed.size(); ++s) all.push_back(states_.listed(tiles_[i], i, s));
      all.push_back(parameter_state(tile, "step", tiles_[i].steps));
    }
    return all;
  }
  std::optional<StateTraffic> traffic() const override { return states_.traffic(); }

  bool has_average() const override {
    return std::ranges::any_of(tiles_, [](const RuledTile& ruled) { return ruled.rule->has_average(); });
  }

  void move_to_average(bool is_average) override {
    if (is_average == std::exchange(is_average_, is_average)) return;
    const at::NoGradGuard no_grad;
    const auto moves = [](const RuledTile& ruled) { return ruled.rule->has_average() && ruled.numel() > 0; };
    std::vector<bool> wanted;
    for (const RuledTile& ruled : tiles_) wanted.push_back(moves(ruled));
    RuledStates::Visit visit(states_, wanted);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      const RuledTile& ruled = tiles_[i];
      if (!moves(ruled)) continue;
      std::vector<at::Tensor> states = ruled.states;
      visit.run(
          ruled, i, states,
          [&](int64_t begin, int64_t size) {
            const bool is_all = size == ruled.numel();
            const at::Tensor all = ruled.tile.tile.detach();
            const at::Tensor value = is_all ? all : all.view({-1}).narrow(0, begin, size);
            const at::Tensor wide = value.to(ruled.parameter.type);
            ruled.rule->move_to_average(is_average, wide, states);
            if (!wide.is_same(value)) value.copy_(wide);
          },
          /*changes=*/false);
    }
    visit.finish();
  }

 private:
  void run(std::vector<Pending>& batch, double scale) {
    int64_t num_rounds = 0;
    for (const Pending& pending : batch) num_rounds = std::max(num_rounds, pending.ruled.rule->num_rounds());
    for (int64_t round = 0; round < num_rounds; ++round) {
      TileTotals totals;
      const auto is_measured = [&](const Pending& pending) { return pending.is_measured(round); };
      RuledStates::Visit visit(states_, wanted(batch, is_measured));
      for (Pending& pending : batch) {
        if (!pending.takes_part(round)) continue;
        visit.run(
            pending.ruled, pending.number, pending.update.states,
            [&](int64_t, int64_t) { pending.measure(round, scale, totals); },
            pending.ruled.rule->changes_tiles(round));
      }
      visit.finish();
      totals.join();
      for (Pending& pending : batch) {
        if (pending.takes_part(round)) pending.take_total(round);
      }
      if (round == 0) examine(batch, scale);
    }
    apply(batch, scale);
    transform(batch, scale);
  }

  void apply(std::vector<Pending>& batch, double scale) {
    const auto is_applied = [](const Pending& pending) { return pending.is_applied(false); };
    RuledStates::Visit visit(states_, wanted(batch, is_applied));
    for (Pending& pending : batch) {
      if (!is_applied(pending)) continue;
      visit.run(
          pending.ruled, pending.number, pending.update.states,
          [&](int64_t begin, int64_t size) { pending.ruled.apply(pending.update, scale, begin, size); },
          pending.ruled.rule->changes_tiles(pending.ruled.rule->num_rounds()));
    }
    visit.finish();
  }

  void transform(std::vector<Pending>& batch, double scale) {
    RuledStates::Visit visit(states_,
                             wanted(batch, [](const auto& pending) { return pending.is_applied(true); }));
    std::vector<TiledMatrix> matrices;
    for (Pending& pending : batch) {
      if (pending.ruled.rule->transforms()) matrices.push_back(matrix_of(pending, scale, visit));
    }
    transform_matrices(matrices);
    visit.finish();
  }

  static void examine(std::vector<Pending>& batch, double scale) {
    std::vector<TiledMatrix> matrices;
    for (Pending& pending : batch) {
      const RuledTile& ruled = pending.ruled;
      if (!ruled.rule->examines()) continue;
      TiledMatrix& matrix =
          matrices.emplace_back(TiledMatrix{ruled.tile.name, ruled.tile.layout, ruled.tile.axes, {}, {}, {}});
      if (!pending.is_updated) continue;
      matrix.result_shape = ruled.rule->examined_shape(pending.update);
      if (matrix.result_shape.empty()) continue;
      matrix.part = [&ruled, scale] { return ruled.scaled_gradient(scale); };
      matrix.transform = [&ruled](const at::Tensor& whole) {
        return ruled.rule->examine(whole, ruled.parameter);
      };
      matrix.take = [&pending, &ruled](const at::Tensor& whole) { ruled.rule->keep(pending.update, whole); };
    }
    transform_matrices(matrices);
  }

  // Says of each tile whether it is one of a batch that `is_wanted` wants.
  std::vector<bool> wanted(const std::vector<Pending>& batch,
                           const std::function<bool(const Pending&)>& is_wanted) const {
    std::vector<bool> all(tiles_.size(), false);
    for (const Pending& pending : batch) all[pending.number] = is_wanted(pending);
    return all;
  }

  static TiledMatrix matrix_of(Pending& pending, double scale, RuledStates::Visit& visit) {
    const RuledTile& ruled = pending.ruled;
    TiledMatrix matrix{ruled.tile.name, ruled.tile.layout, ruled.tile.axes, {}, {}, {}};
    if (!pending.is_updated) return matrix;
    matrix.part = [&pending, &ruled, &visit, scale] {
      pending.update.value = ruled.tile.tile.detach();
      pending.update.gradient = ruled.scaled_gradient(scale);
      at::Tensor part;
      visit.run(ruled, pending.number, pending.update.states, [&](int64_t, int64_t) {
        part = ruled.rule->matrix(pending.update);
        // States that come from a drive leave again before the matrix is transformed.
        for (const at::Tensor& state : pending.update.states)
          if (visit.is_passing() && part.is_alias_of(state)) part = part.clone();
      });
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
  RuledStates states_;
  bool is_average_ = false;  // where the tiles are
};

}  // namespace

std::unique_ptr<Optimizer> make_ruled(std::vector<OptimizedTile> tiles,
                                      const std::function<RulePtr(const RuleParameter&)>& rule_of,
                                      uint64_t seed, const std::optional<SpillPlace>& spill) {
  return std::make_unique<RuledOptimizer>(std::move(tiles), rule_of, seed, spill);
}

}  // namespace tessera::optim
