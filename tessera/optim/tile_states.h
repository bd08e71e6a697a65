// Shared by the optimizers: tiles that are fit to be updated, and states that belong to a whole parameter.
#pragma once

#include <string>
#include <vector>

#include "tessera/optim/optimizer.h"

namespace tessera::optim {

// Returns the tiles, each with its layout. A tile without values is refused with Error(Config), because one
// that gets its memory later would never be updated.
std::vector<OptimizedTile> checked_tiles(std::vector<OptimizedTile> tiles);

// Returns the layout of values of `shape` that all ranks with a part of a parameter have alike. The ranks
// that hold nothing of the parameter hold nothing of these values.
parallel::Layout whole_layout(const parallel::Layout& of_parameter, std::vector<int64_t> shape, DType type);

// Returns a state that is one value for the whole parameter, [1].
checkpoint::StateTensor parameter_state(const OptimizedTile& tile, const std::string& state,
                                        const at::Tensor& value);

}  // namespace tessera::optim
