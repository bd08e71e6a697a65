// Gives storage to parameters that were made on the meta device.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/io/weight_blocks.h"

namespace tessera::nn {

// Turns `parameter` in place into `value`: it takes over the storage, shape, type and device of `value`, and
// stays the same tensor for everyone who holds it (the module's member, its table of parameters), with its
// requires_grad and its hooks. Works from the meta device, where Tensor::set_data refuses. `value` must not
// require grad; it shares its storage with the parameter afterwards. Its shape may differ from the
// parameter's, as a shard's does. The parameter's gradient is dropped.
void materialize(at::Tensor& parameter, const at::Tensor& value);

// Makes a matrix on the meta device one of blocks: bytes, [rows, bytes of a row], frozen. Its rows are whole
// blocks.
void make_coded(at::Tensor& parameter, const io::BlockForm& form);

}  // namespace tessera::nn
