#include "tessera/peft/dora.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace tessera::peft {

at::Tensor row_norms(const ops::Weight& weight, const at::Tensor& a, const at::Tensor& b, double scaling,
                     const ops::ChangeInPlace& sum) {
  constexpr int64_t kPieceElements = int64_t{1} << 19;
  const at::NoGradGuard no_grad;
  const at::ScalarType type = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide_a = a.detach().to(type), wide_b = b.detach().to(type);
  const int64_t rows = weight.size(0), step = std::max<int64_t>(1, kPieceElements / weight.size(1));
  const at::Tensor norms = at::empty({rows}, a.options().dtype(type).requires_grad(false));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const at::Tensor piece = weight.rows(first, count, type);
    at::Tensor changed = at::addmm(piece, wide_b.narrow(0, first, count), wide_a, 1, scaling);
    norms.narrow(0, first, count).copy_(changed.square_().sum(1));
  }
  if (sum) sum(norms);
  norms.sqrt_();
  return norms.masked_fill_(norms.eq(0), 1.0);
}

}  // namespace tessera::peft
