#include "tessera/ops/cast.h"

#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/trace.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

void host::cast_into(const at::Tensor& to, const at::Tensor& from) {
  const bool is_dense = is_on_host(to) && to.is_contiguous() && from.is_contiguous();
  if (is_dense && to.scalar_type() == from.scalar_type()) {
    if (to.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
    return;
  }
  if (!is_dense || to.scalar_type() != at::kBFloat16 || from.scalar_type() != at::kFloat) {
    return plain::cast_into(to, from);
  }
  constexpr int64_t kGrain = 32768;
  const float* source = read<float>(from);
  auto* target = write<kernels::Bf16>(to);
  at::parallel_for(0, from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::narrow(source + begin, target + begin, end - begin);
  });
}

void cast_into(const at::Tensor& to, const at::Tensor& from) {
  const trace::Scope trace_scope("cast_into");
  const at::NoGradGuard no_grad;
  TESSERA_ASSERT(to.sizes() == from.sizes(), "cast_into: sizes differ");
  leaves(from).cast_into(to, from);
}

}  // namespace tessera::ops
