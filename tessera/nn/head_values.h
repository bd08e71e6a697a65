// Numbers of heads as a layer of their own, which is cut along with the heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// Holds one number for each head, such as its sink (ops::AttentionFormula::sinks). Files name the tensor as
// the layer is named, without ".weight". It is made on the meta device, trainable.
class HeadValues : public Layer, public HasInitialValues {
 public:
  HeadValues(int64_t heads, const InitialValue& initial, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return initial_; }

  at::Tensor weight;  // [heads]

 private:
  InitialValue initial_;
};

}  // namespace tessera::nn
