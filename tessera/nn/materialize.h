// Giving storage to parameters that were made on the meta device.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::nn {

// Turns `parameter` in place into `value`: it takes over value's storage, shape, type and device, and stays
// the same tensor for everyone who holds it (the module's member, its table of parameters), with its
// requires_grad and its hooks. Works from the meta device, where Tensor::set_data refuses. `value` must not
// require grad; it shares its storage with the parameter afterwards. A shard may be smaller than what it
// replaces.
void materialize(at::Tensor& parameter, const at::Tensor& value);

}  // namespace tessera::nn
