// The linear layer, saving for the backward pass only what its frozen and trained parts need.
#pragma once

#include <optional>

#include "tessera/ops/activation.h"
#include "tessera/ops/row_exchange.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

// Returns x weight^T + bias; x: [..., in], weight: [out, in], bias: [out]; result [..., out].
//
// x, or its source, is saved only if weight requires grad, so a frozen layer keeps no activation alive.
// weight is saved only if x requires grad, as an alias of the caller's storage, which may be freed and
// refilled with the same numbers in between. Backward computes only the gradients that are needed.
//
// The weight may be coded (weight.h); it then has no gradient, and its values are those of x's type.
//
// If no gradient is needed, x may be float32 over weights in bfloat16 (widened_linear.h), and few rows under
// c10::InferenceMode take small_linear.h.
//
// If x's rows are still coming in (exchange() of row_exchange.h), each range is multiplied as it
// arrives. With `output` each range of the result's rows is sent while the next ones are made, as
// RowExchange::scatter_sum() says, and the rows of its gradient are gathered back in the backward; x is then
// [rows, in], and there is no bias.
at::Tensor linear(const Activation& x, const Weight& weight,
                  const std::optional<at::Tensor>& bias = std::nullopt,
                  const c10::intrusive_ptr<RowExchange>& output = {});

}  // namespace tessera::ops
