// The weight of a linear layer: a matrix of values, or one that is kept in blocks of codes.
#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/io/weight_blocks.h"

namespace tessera::ops {

using WeightForm = std::optional<io::BlockForm>;  // empty: values

// A factor of a product, [rows, columns] of values. Coded weights are never trained, and no value of theirs
// exists in memory but for the few that a product reads at the moment.
class Weight {
 public:
  // A matrix of values; any matrix can be passed where a weight is taken.
  Weight(const at::Tensor& values) : stored_(values) {}  // NOLINT(google-explicit-constructor)
  // If `form` is set, `stored` has the rows' blocks: [out, form.row_bytes(in)], bytes, dense.
  Weight(at::Tensor stored, const WeightForm& form) : stored_(std::move(stored)), form_(form) {}

  bool is_coded() const { return form_.has_value(); }
  // The tensor that is kept: values, or the bytes of blocks, never transposed if it is coded.
  const at::Tensor& stored() const { return stored_; }
  const WeightForm& form() const { return form_; }
  bool requires_grad() const { return stored_.requires_grad(); }
  bool is_transposed() const { return is_transposed_; }
  Weight t() const;

  // The size of the matrix of values.
  int64_t size(int64_t dim) const;
  // Returns the values of a weight that is not coded.
  const at::Tensor& values() const;
  // Returns the values of rows [first, first + count) of the matrix as it is kept, not transposed: dense,
  // [count, columns] in `type`, on the weight's device. For few rows of a coded weight at a time.
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const;
  // Returns how many rows of a coded weight rows() should expand at a time.
  int64_t rows_at_once() const;

 private:
  at::Tensor stored_;
  WeightForm form_;
  bool is_transposed_ = false;
};

// Keep and return the form of a weight in the context of an op's forward, for its backward.
void keep_form(torch::autograd::AutogradContext& ctx, const Weight& weight);
WeightForm kept_form(torch::autograd::AutogradContext& ctx);

}  // namespace tessera::ops
