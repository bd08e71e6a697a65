// The ops as formulas of LibTorch's operations, for any device: they define what the kernels compute. The
// forwards keep the order of operations that Transformers has, so that a model can be compared with it to the
// last bits.
#pragma once

#include "tessera/ops/leaf.h"

// The functions of plain_leaves() (leaf.h).
namespace tessera::ops::plain {

Leaf<&Leaves::multiply> multiply;
Leaf<&Leaves::to_e4m3> to_e4m3;
Leaf<&Leaves::multiply_e4m3> multiply_e4m3;
Leaf<&Leaves::linear> linear;
Leaf<&Leaves::lora_linear> lora_linear;
Leaf<&Leaves::rms_norm> rms_norm;
Leaf<&Leaves::rms_norm_again> rms_norm_again;
Leaf<&Leaves::rms_norm_backward> rms_norm_backward;
Leaf<&Leaves::rope> rope;
Leaf<&Leaves::activate_mlp> activate_mlp;
Leaf<&Leaves::activate_mlp_backward> activate_mlp_backward;
Leaf<&Leaves::attend_spans> attend_spans;
Leaf<&Leaves::attend_spans_backward> attend_spans_backward;
Leaf<&Leaves::document_attention> document_attention;
Leaf<&Leaves::write_cache> write_cache;
Leaf<&Leaves::cached_attention> cached_attention;
Leaf<&Leaves::attend_rows> attend_rows;
Leaf<&Leaves::cross_entropy> cross_entropy;
Leaf<&Leaves::sum_losses> sum_losses;
Leaf<&Leaves::adamw> adamw;
Leaf<&Leaves::sums_of_squares> sums_of_squares;
Leaf<&Leaves::cast_into> cast_into;
Leaf<&Leaves::read_only> read_only;
Leaf<&Leaves::draw> draw;

}  // namespace tessera::ops::plain
