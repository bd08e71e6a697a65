// What ranks do to a value on its way through autograd, and to its gradient on the way back.
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

// Other numbers made of a tensor, of another shape too: those of all ranks, say. May return its argument.
using Transform = std::function<at::Tensor(const at::Tensor&)>;

// value(x), for products to read, which keep x or its source in place of the result and make it again in the
// backward: `value` then runs a second time. `gradient` is called once, with the dense sum of the gradients
// of all readers, and returns that of x; not called where no reader has a gradient.
Activation exchange(const Activation& x, Transform value, Transform gradient);

// The same of a tensor that no product reads next: nothing is kept.
at::Tensor exchange_value(const at::Tensor& x, Transform value, Transform gradient);

// Applies `change` to y, in place, and returns it; gradients pass unchanged. y: dense, as a product has just
// made it. With a gradient it must be neither a leaf nor a view, and no other op may have kept its values.
at::Tensor change_value_(const at::Tensor& y, const ChangeInPlace& change);

}  // namespace tessera::ops
