// Changes that ranks make to a value on its way through autograd, and to its gradient on the way back.
#pragma once

#include <functional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// Changes the numbers of a contiguous tensor in place: sums them over ranks, say.
using ChangeInPlace = std::function<void(const at::Tensor&)>;

// Returns x for products to read, with `change` applied once to the sum of the gradients of all readers of
// the result, those that add theirs to its source among them, before the op that made x takes it. `change` is
// not called if no reader has a gradient. If x has a source, it makes the value again as ever.
Activation change_gradient(const Activation& x, ChangeInPlace change);

// Makes a tensor of a tensor, of another shape too: gathers the rows of all ranks, say. May return its
// argument.
using Transform = std::function<at::Tensor(const at::Tensor&)>;

// Returns value(x) for products to read, which keep x or its source instead of the result and make it again
// in the backward: `value` then runs a second time. `gradient` is called once, with the dense sum of the
// gradients of all readers, and returns the gradient of x; it is not called if no reader has a gradient.
Activation exchange(const Activation& x, Transform value, Transform gradient);

// Returns value(x) for readers other than products; the op keeps nothing.
at::Tensor exchange_value(const at::Tensor& x, Transform value, Transform gradient);

// Applies `change` to y, in place, and returns it; gradients pass unchanged. y: dense, fresh from a
// product. With a gradient it must be neither a leaf nor a view, and no other op may have kept its values.
at::Tensor change_value_(const at::Tensor& y, const ChangeInPlace& change);

}  // namespace tessera::ops
