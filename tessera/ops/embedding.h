// Rows of a table, with a gradient that is added to those rows alone.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/ops/weight.h"

namespace tessera::ops {

// Returns weight[ids]: ids' shape with hidden behind it. weight: [num_embeddings, hidden]; ids: int64 of any
// shape, each below num_embeddings. If the weight takes direct gradients (direct_gradient.h), the backward
// adds to the rows that were read and touches no other; else it makes a whole gradient, as at::embedding
// does. The row `fixed` gets no gradient (torch.nn.Embedding's padding_idx); -1 = none.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t fixed = -1);

// Returns the values, in `type`, of the rows `ids` of a coded table: [tokens, hidden]. ids: [tokens]. No
// gradient flows through it.
at::Tensor coded_embedding(const Weight& table, const at::Tensor& ids, at::ScalarType type);

// Returns embedding() for a table of which `weight` holds only the rows [first_row, first_row +
// weight.size(0)): [tokens, hidden], with zeros for ids of other rows, so that the sum over the holders of
// all rows is the whole. ids: [tokens]; `fixed` is a row of the whole table.
at::Tensor embedding_part(const at::Tensor& weight, int64_t first_row, const at::Tensor& ids,
                          int64_t fixed = -1);

}  // namespace tessera::ops
