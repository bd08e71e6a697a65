#include "tessera/ops/read_only.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/ops/host.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

void host::read_only(const at::Tensor& x) {
  // The memory is read as floats, whatever it holds: only the reading counts.
  const auto* words = read<float>(x);
  const auto count = static_cast<int64_t>(x.nbytes() / sizeof(float));
  at::parallel_for(0, count, 32768, [&](int64_t begin, int64_t end) {
    // Nobody uses the result, but the compiler sees only a declaration of the kernel here, and cannot leave
    // the call out.
    kernels::sum_floats(words + begin, end - begin);
  });
}

void read_only(const at::Tensor& x) { leaves(x).read_only(x); }

}  // namespace tessera::ops
