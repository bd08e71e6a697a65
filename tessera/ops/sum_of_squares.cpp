#include "tessera/ops/sum_of_squares.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

at::Tensor sum_of_squares(const at::Tensor& tensor) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  const trace::Scope trace_scope("sum_of_squares");
  const at::NoGradGuard no_grad;
  check_operands("sum_of_squares", {&tensor});
  if (!uses_kernels(tensor)) return tensor.detach().to(at::kDouble).square().sum();
  const at::Tensor dense = tensor.detach().contiguous();
  std::vector<double> sums(static_cast<size_t>((dense.numel() + kPiece - 1) / kPiece));
  dispatch(dense.scalar_type(), [&](auto tag) {
    const auto* x = read<decltype(tag)>(dense);
    at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        sums[i] = kernels::sum_of_squares(x + i * kPiece, std::min(kPiece, dense.numel() - i * kPiece));
      }
    });
  });
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return at::scalar_tensor(sum, dense.options().dtype(at::kDouble));
}

}  // namespace tessera::ops
