#include "tessera/comm/reduce.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/comm/combine.h"

namespace tessera::comm::detail {
namespace {

// Tells whether the pieces follow each other in the order of the ranks, from the first element to the last.
bool is_in_order(const ScatterPart& part) {
  int64_t end = 0;
  for (const ElementRange& piece : part.pieces) {
    if (piece.begin != end) return false;
    end += piece.count;
  }
  return end == part.input.numel();
}

// Packs the pieces of all parts for rank 0, then those for rank 1, and so on, cast to the type of `options`.
// Gives the input itself if it lies so already.
at::Tensor pack(const std::vector<ScatterPart>& parts, const std::vector<int64_t>& counts,
                const at::TensorOptions& options) {
  if (parts.size() == 1 && parts[0].input.defined() && parts[0].input.scalar_type() == options.dtype() &&
      is_in_order(parts[0])) {
    return parts[0].input.view(-1);
  }
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const at::Tensor packed = at::empty({total}, options);
  int64_t begin = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    for (const ScatterPart& part : parts) {
      const ElementRange& piece = part.pieces[rank];
      const at::Tensor target = packed.narrow(0, begin, piece.count);
      if (part.input.defined()) {
        target.copy_(part.input.view(-1).narrow(0, piece.begin, piece.count));
      } else {
        target.zero_();
      }
      begin += piece.count;
    }
  }
  return packed;
}

}  // namespace

void reduce_scatter(ByteExchange& ranks, const std::vector<ScatterPart>& parts, at::ScalarType type,
                    ReduceOp op) {
  if (parts.empty()) return;
  const at::NoGradGuard no_grad;
  const int64_t num_ranks = ranks.size(), element = static_cast<int64_t>(c10::elementSize(type));
  std::vector<int64_t> counts(num_ranks, 0);  // elements for each rank
  for (const ScatterPart& part : parts) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) counts[rank] += part.pieces[rank].count;
  }
  const int64_t own = counts[ranks.rank()];
  const at::Tensor packed = pack(parts, counts, parts[0].output.options().dtype(type));
  const at::Tensor received = at::empty({num_ranks, own}, packed.options());
  if (std::all_of(counts.begin(), counts.end(), [&](int64_t count) { return count == own; })) {
    ranks.all_to_all(received.mutable_data_ptr(), packed.const_data_ptr(), own * element);
  } else {
    for (int64_t& count : counts) count *= element;
    ranks.all_to_all_v(received.mutable_data_ptr(), packed.const_data_ptr(),
                       std::vector<int64_t>(num_ranks, own * element), counts);
  }
  int64_t begin = 0;
  for (const ScatterPart& part : parts) {
    const int64_t count = part.output.numel();
    combine(part.output.view(-1), received.narrow(1, begin, count).unbind(0), op);
    begin += count;
  }
}

void all_reduce(ByteExchange& ranks, const at::Tensor& tensor, ReduceOp op) {
  if (tensor.numel() == 0) return;
  const at::NoGradGuard no_grad;
  constexpr int64_t kSmallBytes = 64 * 1024;
  const int64_t num_ranks = ranks.size();
  const at::Tensor flat = tensor.view(-1);
  const auto gather = [&](const at::Tensor& output, const at::Tensor& input) {
    ranks.all_gather(output.mutable_data_ptr(), input.const_data_ptr(),
                     std::vector<int64_t>(num_ranks, static_cast<int64_t>(input.nbytes())));
  };
  if (static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes) {
    const at::Tensor pieces = at::empty({num_ranks, flat.numel()}, flat.options());
    gather(pieces, flat);
    combine(flat, pieces.unbind(0), op);
    return;
  }
  const int64_t chunk = (flat.numel() + num_ranks - 1) / num_ranks;
  const at::Tensor padded = at::empty({num_ranks * chunk}, flat.options());
  padded.narrow(0, 0, flat.numel()).copy_(flat);
  padded.narrow(0, flat.numel(), num_ranks * chunk - flat.numel()).zero_();
  const at::Tensor own = at::empty({chunk}, flat.options());
  reduce_scatter(ranks, {{padded, own, even_pieces(padded.numel(), num_ranks)}}, tensor.scalar_type(), op);
  gather(padded, own);
  flat.copy_(padded.narrow(0, 0, flat.numel()));
}

}  // namespace tessera::comm::detail
