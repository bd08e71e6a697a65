#include "tessera/optim/low_rank.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "tessera/device/device.h"

namespace tessera::optim {

LowRank::LowRank(const RuleParameter& parameter, double rank)
    : rows_(parameter.shape[0]),
      columns_(parameter.shape[1]),
      rank_(std::min({static_cast<int64_t>(rank), rows_, columns_})) {}

std::vector<int64_t> LowRank::shape() const {
  return shortens_rows() ? std::vector<int64_t>{rank_, columns_} : std::vector<int64_t>{rows_, rank_};
}

std::vector<int64_t> LowRank::projected_shape() const {
  return shortens_rows() ? std::vector<int64_t>{rows_, rank_} : std::vector<int64_t>{rank_, columns_};
}

at::Tensor LowRank::p_part(const at::Tensor& p, const parallel::Box& box) const {
  return shortens_rows() ? p.narrow(1, box.offset[1], box.size[1]) : p.narrow(0, box.offset[0], box.size[0]);
}

at::Tensor LowRank::part(const at::Tensor& projected, const parallel::Box& box) const {
  return shortens_rows() ? projected.narrow(0, box.offset[0], box.size[0])
                         : projected.narrow(-1, box.offset[1], box.size[1]);
}

at::Tensor LowRank::project(const at::Tensor& x, const at::Tensor& p, const parallel::Box& box) const {
  const at::Tensor all = at::zeros(projected_shape(), x.options().dtype(at::kDouble));
  const at::Tensor own = p_part(p, box).t();
  part(all, box).add_(shortens_rows() ? at::mm(x, own) : at::mm(own, x));
  return all;
}

at::Tensor LowRank::lead_back(const at::Tensor& projected, const at::Tensor& p,
                              const parallel::Box& box) const {
  const at::Tensor here = part(projected, box), own = p_part(p, box);
  return shortens_rows() ? at::mm(here, own) : at::mm(own, here);
}

at::Tensor LowRank::singular_vectors(const at::Tensor& matrix) const {
  if (matrix.is_meta()) return at::empty(shape(), matrix.options());
  const at::Tensor whole = matrix.to(kHost);
  if (!whole.isfinite().all().item<bool>())
    return at::full(shape(), std::numeric_limits<double>::quiet_NaN(), matrix.options());
  const auto [left, values, right] = at::linalg_svd(whole, /*full_matrices=*/false);
  const int64_t dim = shortens_rows() ? 1 : 0;  // along a vector
  const at::Tensor vectors = shortens_rows() ? right.narrow(0, 0, rank_) : left.narrow(1, 0, rank_);
  const at::Tensor largest = vectors.gather(dim, vectors.abs().argmax(dim, /*keepdim=*/true));
  return vectors.mul(largest.sign()).contiguous().to(matrix.device());
}

}  // namespace tessera::optim
