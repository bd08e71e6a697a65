// Identities of autograd with something done on the way: to the gradient of an input, or to a value.
#pragma once

#include <functional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// Changes the numbers of a contiguous tensor in place: a sum over ranks, say.
using ChangeInPlace = std::function<void(const at::Tensor&)>;

// x, for products to read. `change` is applied once to the sum of the gradients of all readers of the result,
// those that add theirs to its source among them, before whatever made x takes it. Not called where no reader
// has a gradient. A source of x makes the value again as ever.
Activation change_gradient(const Activation& x, ChangeInPlace change);

// Applies `change` to y, in place, and returns it; gradients pass unchanged. y: dense, as a product has just
// made it. With a gradient it must be neither a leaf nor a view, and no other op may have kept its values.
at::Tensor change_value_(const at::Tensor& y, const ChangeInPlace& change);

}  // namespace tessera::ops
