#include "tessera/optim/low_rank.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "tessera/device/device.h"

namespace tessera::optim {
namespace {

// Returns the share of the largest singular value up to which others are zero but for roundings, as the rank
// of a matrix is usually counted.
double zero_threshold(const at::Tensor& matrix) {
  const double epsilon = matrix.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                             : std::numeric_limits<float>::epsilon();
  return epsilon * static_cast<double>(std::max(matrix.size(0), matrix.size(1)));
}

// Sets the rows of `vectors`, of shape [count, n], from `first` on: each is the part orthogonal to all
// earlier rows of the axis that has most of it, with norm 1.
void complete(const at::Tensor& vectors, int64_t first) {
  const int64_t count = vectors.size(0);
  if (first >= count) return;
  const at::Tensor known = vectors.narrow(0, 0, first);
  const at::Tensor rest = at::eye(vectors.size(1), vectors.options()).sub_(at::mm(known.t(), known));
  for (int64_t i = first; i < count; ++i) {
    const int64_t axis = rest.diagonal().argmax().item<int64_t>();
    const at::Tensor row = vectors[i].copy_(rest[axis].div(rest[axis].norm()));
    rest.sub_(at::outer(row, row));
  }
}

}  // namespace

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
  const at::Tensor vectors = (shortens_rows() ? right : left.t()).narrow(0, 0, rank_);  // each is a row
  const at::Tensor largest = vectors.gather(1, vectors.abs().argmax(1, /*keepdim=*/true));
  const at::Tensor rows = vectors.mul(largest.sign()).contiguous();
  complete(rows, values.gt(values[0] * zero_threshold(whole)).sum().item<int64_t>());
  return (shortens_rows() ? rows : rows.t()).contiguous().to(matrix.device());
}

}  // namespace tessera::optim
