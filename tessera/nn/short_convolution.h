// The weights of a short convolution along tokens, as a layer.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/linear.h"

namespace tessera::nn {

// Holds the weights of ops::causal_convolution() in the shape that files have. They are made on the meta
// device, trainable.
class ShortConvolution : public Layer, public HasInitialValues {
 public:
  ShortConvolution(int64_t channels, int64_t taps, at::ScalarType dtype, bool has_bias = false);

  InitialValue initial_value(std::string_view name) const override {
    return name == "bias" ? InitialValue::zeros() : InitialValue::normal();
  }

  // Declares the order of the channels in the family's files, as Linear::set_stored_rows() does for outputs.
  void set_stored_rows(std::vector<StoredRows> rows) { stored_rows_ = std::move(rows); }
  const std::vector<StoredRows>& stored_rows() const { return stored_rows_; }

  // Returns the weights as ops::causal_convolution() takes them: [channels, taps].
  at::Tensor taps() const { return weight.squeeze(1); }

  at::Tensor weight;  // [channels, 1, taps]
  at::Tensor bias;    // [channels], in the order of stored_rows() too; undefined without one

 private:
  std::vector<StoredRows> stored_rows_;
};

}  // namespace tessera::nn
