#include "tessera/optim/ruled_tile.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/device/device.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/optim/tile_states.h"
#include "tessera/optim/tile_totals.h"

namespace tessera::optim {
namespace {

// Elements that an element-wise rule gets at a time: few enough to stay in a core's cache between the
// operations of the rule, and on a device so many that launches take no time beside them.
constexpr int64_t kHostPiece = int64_t{1} << 14, kDevicePiece = int64_t{1} << 24;

at::Tensor piece_of(const at::Tensor& x, int64_t begin, int64_t size) {
  return x.view({-1}).narrow(0, begin, size);
}

}  // namespace

RuledTile::RuledTile(OptimizedTile optimized, const std::function<RulePtr(const RuleParameter&)>& rule_of)
    : tile(std::move(optimized)),
      parameter{tile.layout.shape(), tile.tile.scalar_type() == at::kDouble ? at::kDouble : at::kFloat,
                tile.role},
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
  for (const RuleState& state : listed) states.push_back(first_values(state));
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
  const DType type = to_dtype(states[state].scalar_type());
  if (listed[state].form == RuleState::Form::Tile) return {tile.layout.shape(), type, tile.layout.axes()};
  return whole_layout(tile.layout, listed[state].shape, type);
}

at::Tensor RuledTile::scaled_gradient(double scale) const {
  return tile.tile.grad().detach().to(parameter.type).mul(scale).contiguous();
}

void RuledTile::apply_piece(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const {
  const at::Tensor own = piece_of(tile.tile.detach(), begin, size);
  const at::Tensor gradient = tile.tile.grad().detach().reshape({-1}).narrow(0, begin, size);
  RuleUpdate piece = update;
  piece.value = own.to(parameter.type);
  piece.gradient = gradient.to(parameter.type).mul(scale);
  for (size_t s = 0; s < listed.size(); ++s) {
    if (listed[s].form == RuleState::Form::Tile) piece.states[s] = piece_of(states[s], begin, size);
  }
  rule->apply(piece);
  if (!piece.value.is_same(own)) own.copy_(piece.value);
}

void RuledTile::apply(const RuleUpdate& update, double scale) const {
  if (numel() == 0) return;
  if (rule->is_elementwise()) {
    const bool is_here = tile.tile.device() == kHost;
    const int64_t piece = is_here ? kHostPiece : kDevicePiece;
    const auto run = [&](int64_t first, int64_t last) {
      const at::NoGradGuard no_grad;
      for (int64_t begin = first; begin < last; begin += piece)
        apply_piece(update, scale, begin, std::min(piece, last - begin));
    };
    return is_here ? at::parallel_for(0, numel(), piece, run) : run(0, numel());
  }
  const at::Tensor own = tile.tile.detach();
  RuleUpdate whole = update;
  whole.value = own.to(parameter.type);
  whole.gradient = scaled_gradient(scale);
  rule->apply(whole);
  if (!whole.value.is_same(own)) own.copy_(whole.value);
}

}  // namespace tessera::optim
