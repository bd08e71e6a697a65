// Rows of a table, with a gradient that goes to those rows alone.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// weight[ids]; weight: [num_embeddings, hidden], ids: int64 of any shape, each below num_embeddings. Where
// the weight takes direct gradients (direct_gradient.h), the backward pass adds to the rows that were read
// and touches no other; else it makes a whole gradient, as at::embedding does.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

// The same of a table of which the weight holds rows [first_row, first_row + weight.size(0)) alone: zeros for
// ids of other rows, so that the sum over the holders of all rows is the whole. ids: [tokens].
at::Tensor embedding_part(const at::Tensor& weight, int64_t first_row, const at::Tensor& ids);

}  // namespace tessera::ops
