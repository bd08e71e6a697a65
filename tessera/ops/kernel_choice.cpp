#include "tessera/ops/kernel_choice.h"

#include "tessera/core/environment.h"

namespace tessera::ops {

bool uses_kernels(const at::Tensor& x) {
  static const bool is_off = environment::get("TESSERA_OPS") == "plain";
  return x.is_cpu() && x.scalar_type() != at::kHalf && !is_off && !PlainOps::are_on();
}

}  // namespace tessera::ops
