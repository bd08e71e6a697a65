// RMSNorm with a learned scale.
#pragma once

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"
#include "tessera/ops/pass_through.h"

namespace tessera::nn {

// Computes ops::rms_norm(), whose scale is the weight or, if it `adds_one`, 1 + weight. The weight is made on
// the meta device, trainable.
class RMSNorm : public Norm, public HasInitialValues {
 public:
  RMSNorm(int64_t size, double eps, at::ScalarType dtype, bool adds_one = false);

  InitialValue initial_value(std::string_view) const override {
    return adds_one_ ? InitialValue::zeros() : InitialValue::ones();
  }

  // Declares that other ranks have the other elements of the rows, `elements` on all of them together: `sum`
  // adds a tensor up over them, in place.
  void set_part(int64_t elements, ops::ChangeInPlace sum);

  at::Tensor weight;  // [size]

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  at::Tensor scale() const;
  at::Tensor normalise_part(const at::Tensor& x) const;

  double eps_;
  bool adds_one_;
  int64_t elements_ = 0;  // of a row; 0: as many as the weight has
  ops::ChangeInPlace sum_;
};

}  // namespace tessera::nn
