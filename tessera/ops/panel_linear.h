// The linear layer for up to some tens of rows, as in decoding: too few to pack the weights for.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/small_linear.h"

namespace tessera::ops {

// The most rows of panel_linears(). A product that packs its weights costs them as much as about 30 rows do.
inline constexpr int64_t kPanelLinearRows = 96;

// Tells whether a layer can go through panel_linears(): few enough rows of float32, dense weights in float32
// or bfloat16, or coded ones, and vector units for floats (kernels::Units::multiply_plain).
bool is_panel_linear(const at::Tensor& x, const Weight& weight);

// Returns x weight^T + bias of each layer without gradient, [..., out], as small_linears() does: x is packed,
// and the weights are read as they lie. A row's result depends on that row alone, to the last bit, for any
// number of rows and threads.
std::vector<at::Tensor> panel_linears(const at::Tensor& x, const std::vector<LinearOperands>& layers);

}  // namespace tessera::ops
