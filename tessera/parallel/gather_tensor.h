// From the tiles of a tensor to the whole of it.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

// The whole tensor of which this rank holds `tile`, contiguous, on every rank along the axes that cut it or
// have it on some ranks only.
// `axes`: one for each axis of the layout. Needs the memory of the whole beside it, and twice that where an
// axis cuts another dim than the first. Collective over each of those axes in turn, the last one first;
// `hint` names the tensor in errors.
at::Tensor gather_tensor(const at::Tensor& tile, const Layout& layout, const std::vector<RankAxis>& axes,
                         const std::string& hint);

}  // namespace tessera::parallel
