// A linear layer with a low-rank adapter as one autograd function.
#pragma once

#include <optional>

#include "tessera/ops/activation.h"
#include "tessera/ops/row_exchange.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

// Returns x weight^T + bias + scaling * ((x * mask) a^T) b^T, the adapter's product added into the base
// result in place.
//
// x: [..., in]; weight: [out, in], frozen or not; bias: [out]; a: [rank, in]; b: [out, rank]; all of one
// type (a coded weight has x's); result [..., out]. In bfloat16, `scaling` times b is rounded once, which is
// exact for powers of two. dropout_mask_scaled: x's shape, holding 0 or 1/(1-p) (see counter_dropout.h),
// applied to the adapter's input alone. Saves x or its source, the mask and the [tokens, rank] product;
// weights are saved as aliases of the caller's storage. The backward makes no gradient that is not needed.
// `output` and rows of x that are still coming in are as in linear() (linear.h).
at::Tensor lora_linear(const Activation& x, const Weight& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, double scaling,
                       const std::optional<at::Tensor>& dropout_mask_scaled = std::nullopt,
                       const c10::intrusive_ptr<RowExchange>& output = {});

}  // namespace tessera::ops
