#include "tessera/ops/activation.h"

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {

const at::Tensor& ActivationSource::value() {
  if (!value_.defined()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    value_ = make();
  }
  return value_;
}

E4m3Operand& ActivationSource::value_operand() {
  if (!operand_) operand_.emplace(flatten_rows(value()));
  return *operand_;
}

void ActivationSource::free_value() {
  operand_.reset();
  value_.reset();
}

}  // namespace tessera::ops
