// A norm of heads of which each has a scale of its own.
#pragma once

#include <string>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Normalises the last dim of [tokens, heads, head_dim], and multiplies each head by its part of the weight.
// There is no bias. The weight is made on the meta device, trainable.
class HeadNorm : public Norm, public HasInitialValues {
 public:
  // options: the kind and eps. With `stored_list` files hold each head's scale apart, in a list of that name.
  HeadNorm(int64_t heads, int64_t head_dim, const NormOptions& options, at::ScalarType dtype,
           std::string stored_list = {});

  InitialValue initial_value(std::string_view) const override { return InitialValue::ones(); }

  const std::string& stored_list() const { return stored_list_; }
  int64_t head_dim() const { return head_dim_; }

  at::Tensor weight;  // [heads, head_dim], or [heads * head_dim] with a stored_list()

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  const NormOptions options_;
  const std::string stored_list_;
  const int64_t head_dim_;
};

}  // namespace tessera::nn
