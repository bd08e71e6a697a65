#include "tessera/comm/reduce.h"

#include <ATen/ATen.h>

#include "tessera/comm/combine.h"

namespace tessera::comm::detail {
namespace {

void combine_rows(const at::Tensor& output, const at::Tensor& rows, ReduceOp op) {
  combine(output, rows.unbind(0), op);
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

void reduce_scatter(Backend& backend, const std::vector<ScatterPart>& parts, at::ScalarType type,
                    ReduceOp op) {
  const at::NoGradGuard no_grad;
  if (backend.size() == 1) {
    for (const ScatterPart& part : parts) {
      if (part.input.defined()) {
        part.output.view(-1).copy_(part.input.view(-1).narrow(0, part.pieces[0].begin, part.pieces[0].count));
      } else {
        part.output.zero_();
      }
    }
    return;
  }
  int64_t row = 0;
  for (const ScatterPart& part : parts) row += part.longest_piece();
  const at::Tensor packed = at::zeros({backend.size(), row}, at::TensorOptions().dtype(type));
  int64_t offset = 0;
  for (const ScatterPart& part : parts) {
    for (int64_t rank = 0; rank < backend.size() && part.input.defined(); ++rank) {
      const ElementRange& piece = part.pieces[rank];
      packed.select(0, rank)
          .narrow(0, offset, piece.count)
          .copy_(part.input.view(-1).narrow(0, piece.begin, piece.count));
    }
    offset += part.longest_piece();
  }
  const at::Tensor reduced = at::empty({row}, packed.options());
  reduce_scatter(backend, reduced, packed, op);
  offset = 0;
  for (const ScatterPart& part : parts) {
    part.output.view(-1).copy_(reduced.narrow(0, offset, part.output.numel()));
    offset += part.longest_piece();
  }
}

void all_reduce(Backend& backend, const at::Tensor& tensor, ReduceOp op) {
  if (backend.size() == 1 || tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  constexpr int64_t kSmallBytes = 64 * 1024;
  const int64_t size = backend.size();
  const at::Tensor flat = tensor.view(-1);
  if (static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes) {
    const at::Tensor pieces = at::empty({size, flat.numel()}, flat.options());
    backend.all_gather(pieces.mutable_data_ptr(), flat.const_data_ptr(),
                       std::vector<int64_t>(size, static_cast<int64_t>(flat.nbytes())));
    combine_rows(flat, pieces, op);
    return;
  }
  const int64_t chunk = (flat.numel() + size - 1) / size;
  at::Tensor padded = at::empty({size * chunk}, flat.options());
  padded.narrow(0, 0, flat.numel()).copy_(flat);
  padded.narrow(0, flat.numel(), size * chunk - flat.numel()).zero_();
  const at::Tensor own = at::empty({chunk}, flat.options());
  reduce_scatter(backend, own, padded, op);
  backend.all_gather(padded.mutable_data_ptr(), own.const_data_ptr(),
                     std::vector<int64_t>(size, static_cast<int64_t>(own.nbytes())));
  flat.copy_(padded.narrow(0, 0, flat.numel()));
}

}  // namespace tessera::comm::detail
