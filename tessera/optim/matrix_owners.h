// Transforms matrices that lie in tiles on many ranks: each rank takes its turn with whole matrices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::optim {

// One of the matrices, as a rank that holds a tile of it sees it.
struct TiledMatrix {
  std::string name;
  parallel::Layout layout;
  std::vector<parallel::RankAxis> axes;  // one for each axis of the layout
  // Gives this rank's tile, in the shape of its box. Empty for a matrix that this rank does not hold, or that
  // all its holders leave out.
  std::function<at::Tensor()> part;
  // Computes the result from the whole matrix: a dense tensor of the matrix's shape and type.
  std::function<at::Tensor(const at::Tensor& whole)> transform;
  std::function<void(const at::Tensor& part)> take;  // takes this rank's tile of the result
  // Shape of a result that every rank takes as a whole; empty where it is that of the matrix.
  std::vector<int64_t> result_shape = {};
};

// Transforms all matrices. As many at a time as there are ranks are gathered, each is transformed by one of
// the ranks, all of them at work at once, and the results go to all; the ranks with copies of a tile thus get
// the same bits. A rank needs memory for two whole matrices. All ranks list all matrices in the same order,
// also those that they do not hold. Collective over the groups of the axes.
void transform_matrices(const std::vector<TiledMatrix>& matrices);

}  // namespace tessera::optim
