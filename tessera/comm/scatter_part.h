// A tensor that takes part in a reduction of several at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::comm {

// A run of the elements of a tensor in row-major order.
struct ElementRange {
  int64_t begin = 0, count = 0;
  bool operator==(const ElementRange&) const = default;
};

// Gives one piece for each rank, of equal lengths; num_ranks must divide numel.
inline std::vector<ElementRange> even_pieces(int64_t numel, int64_t num_ranks) {
  std::vector<ElementRange> pieces;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    pieces.push_back({numel / num_ranks * rank, numel / num_ranks});
  }
  return pieces;
}

// `output` gets the reduction of the elements `pieces[rank]` of every rank's `input`. The tensors are
// contiguous.
struct ScatterPart {
  at::Tensor input;   // any floating type; undefined = zeros
  at::Tensor output;  // of the reduction's type; numel of this rank's piece
  // The piece of `input` for each rank; the same on all ranks, of any lengths, also empty.
  std::vector<ElementRange> pieces;

  int64_t longest_piece() const {
    int64_t longest = 0;
    for (const ElementRange& piece : pieces) longest = std::max(longest, piece.count);
    return longest;
  }
};

}  // namespace tessera::comm
