#include "tessera/ops/cast.h"

#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

void cast_into(const at::Tensor& to, const at::Tensor& from) {
  const trace::Scope trace_scope("cast_into");
  const at::NoGradGuard no_grad;
  TESSERA_ASSERT(to.sizes() == from.sizes(), "cast_into: sizes differ");
  const bool has_kernels =
      uses_kernels(to) && uses_kernels(from) && to.is_contiguous() && from.is_contiguous();
  if (has_kernels && to.scalar_type() == from.scalar_type()) {
    if (to.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
    return;
  }
  if (!has_kernels || to.scalar_type() != at::kBFloat16 || from.scalar_type() != at::kFloat) {
    to.copy_(from);
    return;
  }
  constexpr int64_t kGrain = 32768;
  const float* source = read<float>(from);
  auto* target = write<kernels::Bf16>(to);
  at::parallel_for(0, from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::narrow(source + begin, target + begin, end - begin);
  });
}

}  // namespace tessera::ops
