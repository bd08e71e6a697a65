// Gathers a whole tensor from its tiles.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

// Returns the whole tensor of which this rank holds `tile`: contiguous, the same on every rank along the axes
// that cut it or have it on some ranks only. `axes` has one entry for each axis of the layout; `hint` names
// the tensor in errors. Needs memory for the whole tensor beside the tile, and twice that if an axis cuts
// another dim than the first. Collective over each of those axes in turn, the last one first.
at::Tensor gather_tensor(const at::Tensor& tile, const Layout& layout, const std::vector<RankAxis>& axes,
                         const std::string& hint);

}  // namespace tessera::parallel
