#include "tessera/optim/tile_states.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::optim {

std::vector<OptimizedTile> checked_tiles(std::vector<OptimizedTile> tiles) {
  for (OptimizedTile& tile : tiles) {
    TESSERA_CHECK_ARGUMENT(
        tile.tile.defined() && (!tile.tile.is_meta() || tile.updated_on == c10::Device(at::kMeta)),
        "the tile of '" + tile.name + "' has no values; make the optimizer after they are loaded");
    const std::vector<int64_t> shape = tile.tile.sizes().vec();
    if (tile.layout.axes().empty()) tile.layout = {shape, to_dtype(tile.tile.scalar_type()), {}};
    TESSERA_ASSERT(tile.layout.local_box(tile.coordinates).size == shape, "a tile has the shape of its box");
  }
  return tiles;
}

parallel::Layout whole_layout(const parallel::Layout& of_parameter, std::vector<int64_t> shape, DType type) {
  std::vector<parallel::AxisPlacement> axes = of_parameter.axes();
  for (parallel::AxisPlacement& axis : axes) {
    if (axis.placement.kind == parallel::Placement::Kind::Shard)
      axis.placement = parallel::Placement::replicate();
  }
  return {std::move(shape), type, std::move(axes)};
}

checkpoint::StateTensor parameter_state(const OptimizedTile& tile, const std::string& state,
                                        const at::Tensor& value) {
  const parallel::Layout layout = whole_layout(tile.layout, {1}, to_dtype(value.scalar_type()));
  const int64_t held = layout.local_box(tile.coordinates).size[0];
  return checkpoint::state_tensor(tile.name + "/" + state, layout, tile.coordinates,
                                  value.narrow(0, 0, held));
}

}  // namespace tessera::optim
