#include "tessera/optim/ruled_tile.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/rng.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/ops/stochastic_rounding.h"
#include "tessera/optim/tile_states.h"
#include "tessera/optim/tile_totals.h"

namespace tessera::optim {
namespace {

// Elements that an element-wise rule gets at a time: few enough to stay in a core's cache between the
// operations of the rule, and on a device so many that launches take no time beside them.
constexpr int64_t kHostPiece = int64_t{1} << 14, kDevicePiece = int64_t{1} << 24;
// Elements that other rules get at a time, about: temporary tensors are of this size and not of the tile's.
constexpr int64_t kRowsPiece = int64_t{1} << 22;

at::Tensor piece_of(const at::Tensor& x, int64_t begin, int64_t size) {
  return x.view({-1}).narrow(0, begin, size);
}

}  // namespace

RuledTile::RuledTile(OptimizedTile optimized, const std::function<RulePtr(const RuleParameter&)>& rule_of,
                     uint64_t seed, bool holds_tiles)
    : tile(std::move(optimized)),
      parameter{tile.layout.shape(), tile.tile.scalar_type() == at::kDouble ? at::kDouble : at::kFloat,
                tile.role,           tile.name,
                tile.row_blocks,     tile.is_target},
      box(tile.layout.local_box(tile.coordinates)),
      steps(at::zeros({1}, on_host(at::kFloat))) {
  TESSERA_CHECK_ARGUMENT(tile.updated_on.value_or(tile.tile.device()) == tile.tile.device(),
                         "the tile of '" + tile.name + "' lies beside the device that updates it");
  TESSERA_CHECK_ARGUMENT(tile.tile.is_contiguous(), "the tile of '" + tile.name + "' is not dense");
  rule = rule_of(parameter);
  listed = rule->states(parameter);
  if (rule->num_rounds() > 0) {
    TESSERA_CHECK_ARGUMENT(tile.axes.size() == tile.layout.axes().size(),
                           "the tile of '" + tile.name + "' needs its axes: its rule reads whole parameters");
    groups = cutting_groups(tile.layout, tile.axes);
  }
  is_held = whole_layout(tile.layout, {1}, DType::F32).local_box(tile.coordinates).size[0] > 0;
  for (size_t s = 0; s < listed.size(); ++s)
    states.push_back(holds_tiles || !is_tile(s) || numel() == 0 ? first_values(listed[s]) : at::Tensor());
  if (tile.tile.scalar_type() == at::kBFloat16) {
    rounding =
        Rounding{seed, stream_of((tile.name + "/value").c_str()), TileNumbers(tile.layout.shape(), box)};
  }
}

size_t RuledTile::tile_number(size_t state) const {
  size_t number = 0;
  for (size_t s = 0; s < state; ++s) number += is_tile(s) ? 1 : 0;
  return number;
}

at::Tensor RuledTile::first_values(const RuleState& state) const {
  const at::ScalarType type = state.type.value_or(parameter.type);
  const bool is_tile = state.form == RuleState::Form::Tile;
  const auto options = at::TensorOptions(state.is_on_host ? kHost : tile.tile.device()).dtype(type);
  if (!is_tile)
    return at::zeros(whole_layout(tile.layout, state.shape, to_dtype(type)).local_box(tile.coordinates).size,
                     options);
  if (state.start == RuleState::Start::Zero) return at::zeros(tile.tile.sizes(), options);
  return tile.tile.detach().to(options, /*non_blocking=*/false, /*copy=*/true);
}

parallel::Layout RuledTile::layout_of(size_t state) const {
  const DType type = to_dtype(type_of(state));
  if (is_tile(state)) return {tile.layout.shape(), type, tile.layout.axes()};
  return whole_layout(tile.layout, listed[state].shape, type);
}

at::Tensor RuledTile::scaled_gradient(double scale) const {
  return tile.tile.grad().detach().to(parameter.type).mul(scale).contiguous();
}

void RuledTile::store(const at::Tensor& value, int64_t begin, int64_t step) const {
  const at::Tensor own = piece_of(tile.tile.detach(), begin, value.numel());
  if (value.is_alias_of(own)) return;
  if (!rounding) {
    own.copy_(value.view({-1}));
    return;
  }
  const auto count = static_cast<uint64_t>(step);
  for (const NumberedPart& part : rounding->numbers.parts(begin, value.numel())) {
    const auto of_part = [&](const at::Tensor& x) { return piece_of(x, part.begin - begin, part.size); };
    ops::round_into(of_part(own), of_part(value),
                    {CounterRng(rounding->seed, rounding->stream, count), count, part.numbers});
  }
}

void RuledTile::apply_piece(const RuleUpdate& update, double scale, int64_t begin, int64_t offset,
                            int64_t size) const {
  const at::Tensor own = piece_of(tile.tile.detach(), begin + offset, size);
  const at::Tensor gradient = tile.tile.grad().detach().reshape({-1}).narrow(0, begin + offset, size);
  RuleUpdate piece = update;
  piece.value = own.to(parameter.type);
  piece.gradient = gradient.to(parameter.type).mul(scale);
  for (size_t s = 0; s < listed.size(); ++s) {
    if (is_tile(s)) piece.states[s] = piece_of(update.states[s], offset, size);
  }
  rule->apply(piece);
  store(piece.value, begin + offset, update.step);
}

void RuledTile::for_rows(const RuleUpdate& update, double scale,
                         const std::function<void(RuleUpdate& rows, int64_t begin)>& f) const {
  const int64_t num_rows = tile.tile.size(0), width = numel() / num_rows;
  const int64_t at_once =
      rule->transforms() ? num_rows : std::max<int64_t>(1, kRowsPiece / std::max<int64_t>(1, width));
  for (int64_t row = 0; row < num_rows; row += at_once) {
    const int64_t count = std::min(at_once, num_rows - row);
    const auto rows_of = [&](const at::Tensor& x) { return x.detach().narrow(0, row, count); };
    parallel::Box here = box;
    here.offset[0] += row;
    here.size[0] = count;
    RuleUpdate rows = update;
    rows.box = &here;
    rows.value = rows_of(tile.tile).to(parameter.type);
    rows.gradient = rows_of(tile.tile.grad()).to(parameter.type).mul(scale).contiguous();
    for (size_t s = 0; s < listed.size(); ++s) {
      // They are not there for a rule whose matrix() has read them already.
      if (is_tile(s) && update.states[s].defined()) rows.states[s] = rows_of(update.states[s]);
    }
    f(rows, row * width);
  }
}

at::Tensor RuledTile::measure(int64_t round, const RuleUpdate& update, double scale) const {
  at::Tensor all;
  for_rows(update, scale, [&](RuleUpdate& rows, int64_t) {
    const at::Tensor measured = rule->measure(round, rows).view({-1});
    if (!all.defined()) {
      all = measured;
    } else if (rule->joined_by() == comm::ReduceOp::Max) {
      all = all.maximum(measured);
    } else {
      all = all.add(measured);
    }
  });
  return all;
}

void RuledTile::apply(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const {
  if (size == 0) return;
  if (rule->is_elementwise()) {
    const bool is_here = is_on_host(tile.tile) || tile.tile.is_meta();
    const int64_t at_once = is_here ? kHostPiece : kDevicePiece;
    const auto run = [&](int64_t first, int64_t last) {
      const at::NoGradGuard no_grad;
      for (int64_t offset = first; offset < last; offset += at_once)
        apply_piece(update, scale, begin, offset, std::min(at_once, last - offset));
    };
    return is_here ? at::parallel_for(0, size, at_once, run) : run(0, size);
  }
  for_rows(update, scale, [&](RuleUpdate& rows, int64_t begin) {
    rule->apply(rows);
    store(rows.value, begin, update.step);
  });
}

}  // namespace tessera::optim
