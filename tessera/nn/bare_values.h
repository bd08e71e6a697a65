// A list of numbers as a layer of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// Holds numbers, such as one for each head: its sink (ops::AttentionFormula::sinks). Files name the tensor as
// the layer is named, without ".weight". It is made on the meta device, trainable.
class BareValues : public Layer, public HasInitialValues {
 public:
  BareValues(int64_t count, const InitialValue& initial, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return initial_; }

  at::Tensor weight;  // [count]

 private:
  InitialValue initial_;
};

}  // namespace tessera::nn
