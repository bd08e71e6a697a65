// A norm of heads of which each has a scale of its own.
#pragma once

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Normalises the last dim of [tokens, heads, head_dim], and multiplies head h by weight[h]. There is no bias.
// The weight is made on the meta device, trainable.
class HeadNorm : public Norm, public HasInitialValues {
 public:
  // options: the kind and eps.
  HeadNorm(int64_t heads, int64_t head_dim, const NormOptions& options, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::ones(); }

  at::Tensor weight;  // [heads, head_dim]

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  const NormOptions options_;
};

}  // namespace tessera::nn
