#include "tessera/comm/reduce.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::comm::detail {
namespace {

void combine(const at::Tensor& accumulator, const at::Tensor& piece, ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: accumulator.add_(piece); return;
    case ReduceOp::Max: at::maximum_out(const_cast<at::Tensor&>(accumulator), accumulator, piece); return;
    case ReduceOp::Min: at::minimum_out(const_cast<at::Tensor&>(accumulator), accumulator, piece); return;
  }
}

// Combines the rows of `pieces` [size, n] into `output` [n], first row first.
void combine_rows(const at::Tensor& output, const at::Tensor& pieces, ReduceOp op) {
  const bool is_half = output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
  if (op == ReduceOp::Sum && is_half) {
    at::Tensor sum = pieces.select(0, 0).to(at::kFloat);
    for (int64_t r = 1; r < pieces.size(0); ++r) sum.add_(pieces.select(0, r));
    output.copy_(sum);
    return;
  }
  output.copy_(pieces.select(0, 0));
  for (int64_t r = 1; r < pieces.size(0); ++r) combine(output, pieces.select(0, r), op);
}

}  // namespace

void reduce_scatter(Backend& backend, const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat_output = output.view(-1);
  if (backend.size() == 1) {
    flat_output.copy_(input.view(-1));
    return;
  }
  const at::Tensor pieces = at::empty({backend.size(), output.numel()}, output.options());
  backend.all_to_all(pieces.mutable_data_ptr(), input.const_data_ptr(),
                     static_cast<int64_t>(output.nbytes()));
  combine_rows(flat_output, pieces, op);
}

void all_reduce(Backend& backend, const at::Tensor& tensor, ReduceOp op) {
  if (backend.size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  constexpr int64_t kSmallBytes = 64 * 1024;
  const int64_t size = backend.size();
  const at::Tensor flat = tensor.view(-1);
  if (static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes) {
    const at::Tensor pieces = at::empty({size, flat.numel()}, flat.options());
    backend.all_gather(pieces.mutable_data_ptr(), flat.const_data_ptr(), static_cast<int64_t>(flat.nbytes()));
    combine_rows(flat, pieces, op);
    return;
  }
  const int64_t chunk = (flat.numel() + size - 1) / size;
  at::Tensor padded = at::empty({size * chunk}, flat.options());
  padded.narrow(0, 0, flat.numel()).copy_(flat);
  padded.narrow(0, flat.numel(), size * chunk - flat.numel()).zero_();
  const at::Tensor own = at::empty({chunk}, flat.options());
  reduce_scatter(backend, own, padded, op);
  backend.all_gather(padded.mutable_data_ptr(), own.const_data_ptr(), static_cast<int64_t>(own.nbytes()));
  flat.copy_(padded.narrow(0, 0, flat.numel()));
}

}  // namespace tessera::comm::detail
