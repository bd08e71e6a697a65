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

// Deals the elements to the ranks, one piece each, in their order and as evenly as possible: if they do not
// divide, the first pieces hold one more.
inline std::vector<ElementRange> even_pieces(int64_t numel, int64_t num_ranks) {
  std::vector<ElementRange> pieces;
  for (int64_t rank = 0, begin = 0; rank < num_ranks; begin += pieces[rank].count, ++rank)
    pieces.push_back({begin, numel / num_ranks + (rank < numel % num_ranks ? 1 : 0)});
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
