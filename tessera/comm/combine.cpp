#include "tessera/comm/combine.h"

#include <ATen/ATen.h>

namespace tessera::comm::detail {
namespace {

void combine_two(at::Tensor output, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: at::add_out(output, a, b); return;
    case ReduceOp::Max: at::maximum_out(output, a, b); return;
    case ReduceOp::Min: at::minimum_out(output, a, b); return;
  }
}

}  // namespace

void combine(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op) {
  const bool is_half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  if (op == ReduceOp::Sum && is_half) {
    at::Tensor sum = pieces[0].to(at::kFloat);
    for (size_t i = 1; i < pieces.size(); ++i) sum.add_(pieces[i]);
    output.copy_(sum);
    return;
  }
  if (pieces.size() == 1) {
    output.copy_(pieces[0]);
    return;
  }
  // Only the last step writes to the output, which may be a piece.
  at::Tensor so_far = pieces[0];
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const at::Tensor next = i == 1 ? at::empty_like(output) : so_far;
    combine_two(next, so_far, pieces[i], op);
    so_far = next;
  }
  combine_two(output, so_far, pieces.back(), op);
}

}  // namespace tessera::comm::detail
