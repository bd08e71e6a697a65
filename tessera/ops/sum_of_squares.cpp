#include "tessera/ops/sum_of_squares.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/trace.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

at::Tensor sum_of_squares_on_host(const at::Tensor& tensor) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  if (tensor.scalar_type() == at::kHalf) return plain::sums_of_squares({tensor}).front();
  const at::Tensor dense = tensor.contiguous();
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

}  // namespace

std::vector<at::Tensor> host::sums_of_squares(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& tensor : all) sums.push_back(sum_of_squares_on_host(tensor));
  return sums;
}

std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all) {
  const trace::Scope trace_scope("sum_of_squares");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : all) {
    check_operands("sum_of_squares", {&tensor, &all.front()});
    values.push_back(tensor.detach());
  }
  return all.empty() ? values : leaves(all.front()).sums_of_squares(values);
}

at::Tensor sum_of_squares(const at::Tensor& tensor) { return sums_of_squares({tensor}).front(); }

}  // namespace tessera::ops
