// One token of each of several sequences through the gated delta rule.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "tessera/ops/gated_delta_rule.h"

namespace tessera::ops {

// Does what continue_delta_rule() does for one token of each document, without gradient. A sequence's numbers
// are the same whatever the others are, to the bit.
std::pair<at::Tensor, at::Tensor> delta_step(const DeltaInputs& inputs, const DeltaHead& head,
                                             const at::Tensor& memory);

}  // namespace tessera::ops
