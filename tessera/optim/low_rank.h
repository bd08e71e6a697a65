// Gradients of matrices, projected to fewer rows or columns.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/optim/rule.h"

namespace tessera::optim {

// Projects a matrix of shape [m, n] to a rank. Where m >= n, its rows become shorter: x P' of shape [m,
// rank], with P of shape [rank, n]. Else its columns do: P' x of shape [rank, n], with P of shape [m, rank].
// A rank above the matrix's shorter side counts as that side.
class LowRank {
 public:
  LowRank(const RuleParameter& parameter, double rank);

  bool shortens_rows() const { return rows_ >= columns_; }
  std::vector<int64_t> shape() const;            // of P
  std::vector<int64_t> projected_shape() const;  // of the projected matrix
  int64_t rank() const { return rank_; }

  // Returns what the tile at `box`, with the values `x`, adds to the projected matrix: all tiles together sum
  // up to it. float64, projected_shape().
  at::Tensor project(const at::Tensor& x, const at::Tensor& p, const parallel::Box& box) const;
  // Returns the tile at `box` of the matrix that has the projection `projected` and is led back by P.
  at::Tensor lead_back(const at::Tensor& projected, const at::Tensor& p, const parallel::Box& box) const;
  // Returns the rows or columns of a projected matrix, or of a vector of numbers for them, that belong to the
  // tile at `box`.
  at::Tensor part(const at::Tensor& projected, const parallel::Box& box) const;
  // Returns P for the rank largest singular values of `matrix`: their singular vectors, each with the sign
  // that makes its element of the largest magnitude positive. NaN where the matrix is not finite. Vectors of
  // singular values that are zero but for roundings could point anywhere, elsewhere under another split:
  // axes take their places, as far as they are orthogonal to the others.
  at::Tensor singular_vectors(const at::Tensor& matrix) const;

 private:
  at::Tensor p_part(const at::Tensor& p, const parallel::Box& box) const;

  int64_t rows_, columns_, rank_;
};

}  // namespace tessera::optim
