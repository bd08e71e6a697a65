// Whether an op runs on Tessera's kernels or by its plain formula.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"

namespace tessera::ops {

// Tessera's kernels read and write host memory. True for a tensor that lies there, but for one of float16,
// and for PlainOps and TESSERA_OPS=plain. Where it is false, an op is computed by the plain formula that
// stands beside its kernel, of LibTorch's operations: these run on any device.
bool uses_kernels(const at::Tensor& x);

// While one lives, no op uses kernels.
class PlainOps {
 public:
  PlainOps() : scope_(Mark{}) {}

  static bool are_on() { return CarriedScope<Mark>::current() != nullptr; }

 private:
  struct Mark {};
  CarriedScope<Mark> scope_;
};

}  // namespace tessera::ops
