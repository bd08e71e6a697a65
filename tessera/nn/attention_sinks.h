// The sinks of attention heads as a layer of their own, which is cut along with the heads.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// Holds the score of one more key for each head (ops::AttentionFormula::sinks). Files name the tensor as the
// layer is named, without ".weight". It is made on the meta device, trainable.
class AttentionSinks : public Layer, public HasInitialValues {
 public:
  AttentionSinks(int64_t heads, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::normal(); }

  at::Tensor weight;  // [heads]
};

}  // namespace tessera::nn
