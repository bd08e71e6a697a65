#include "tessera/ops/activation.h"

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {

const at::Tensor& ActivationSource::value() {
  if (!value_.defined()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // The scope keeps the leaf from computing a scale: the recomputed value has the forward's scale_, or no
    // product needs one.
    const ProductScope products(ProductType::OfOperands);
    value_ = make();
    keep_e4m3_scale(value_, scale_);
  }
  return value_;
}

E4m3Operand& ActivationSource::value_operand() {
  if (!operand_) operand_.emplace(flatten_rows(value()), scale_);
  return *operand_;
}

void ActivationSource::free_value() {
  operand_.reset();
  value_.reset();
}

}  // namespace tessera::ops
