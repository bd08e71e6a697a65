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

RuledTile::RuledTile(OptimizedTile optimized, const std::function<RulePtr(const RuleParameter&)>& rule_of,
                     bool holds_tiles)
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
  for (size_t s = 0; s < listed.size(); ++s)
    states.push_back(holds_tiles || !is_tile(s) || numel() == 0 ? first_values(listed[s]) : at::Tensor());
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
  if (!piece.value.is_same(own)) own.copy_(piece.value);
}

void RuledTile::apply(const RuleUpdate& update, double scale, int64_t begin, int64_t size) const {
  if (size == 0) return;
  if (rule->is_elementwise()) {
    const bool is_here = tile.tile.device() == kHost;
    const int64_t at_once = is_here ? kHostPiece : kDevicePiece;
    const auto run = [&](int64_t first, int64_t last) {
      const at::NoGradGuard no_grad;
      for (int64_t offset = first; offset < last; offset += at_once)
        apply_piece(update, scale, begin, offset, std::min(at_once, last - offset));
    };
    return is_here ? at::parallel_for(0, size, at_once, run) : run(0, size);
  }
  const at::Tensor own = tile.tile.detach();
  RuleUpdate whole = update;
  whole.value = own.to(parameter.type);
  whole.gradient = scaled_gradient(scale);
  rule->apply(whole);
  if (!whole.value.is_same(own)) own.copy_(whole.value);
}

}  // namespace tessera::optim
