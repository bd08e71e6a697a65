// The leaves of the ops (leaf.h) that run on Tessera's kernels for the processor. Each is defined in the
// source of its op.
#pragma once

#include "tessera/ops/leaf.h"

namespace tessera::ops::host {

Leaf<&Leaves::multiply> multiply;
Leaf<&Leaves::small_linears> small_linears;
Leaf<&Leaves::rms_norm> rms_norm;
Leaf<&Leaves::rms_norm_again> rms_norm_again;
Leaf<&Leaves::rms_norm_backward> rms_norm_backward;
Leaf<&Leaves::rope> rope;
Leaf<&Leaves::activate_mlp> activate_mlp;
Leaf<&Leaves::activate_mlp_backward> activate_mlp_backward;
Leaf<&Leaves::attend_spans> attend_spans;
Leaf<&Leaves::attend_spans_backward> attend_spans_backward;
Leaf<&Leaves::write_cache> write_cache;
Leaf<&Leaves::cached_attention> cached_attention;
Leaf<&Leaves::cross_entropy> cross_entropy;
Leaf<&Leaves::sum_losses> sum_losses;
Leaf<&Leaves::adamw> adamw;
Leaf<&Leaves::sums_of_squares> sums_of_squares;
Leaf<&Leaves::cast_into> cast_into;
Leaf<&Leaves::read_only> read_only;
Leaf<&Leaves::draw> draw;

}  // namespace tessera::ops::host
