#include "tessera/ops/activation.h"

#include <ATen/ATen.h>

namespace tessera::ops {

const at::Tensor& ActivationSource::value() {
  if (!value_.defined()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    value_ = make();
  }
  return value_;
}

}  // namespace tessera::ops
