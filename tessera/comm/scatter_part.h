// A tensor that takes part in a reduction of several at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::comm {

// `input` is cut into pieces of `piece` elements, one for each rank in order, of which the last ones may be
// short or empty; `output` gets the reduction of this rank's piece. Contiguous CPU tensors.
struct ScatterPart {
  at::Tensor input;   // any floating type; undefined = zeros
  at::Tensor output;  // of the reduction's type; numel of this rank's piece
  int64_t piece = 0;
  int64_t numel = 0;  // of the input, also where it is undefined
};

// Where rank `rank`'s piece of the part begins, and how many elements it has.
struct PieceRange {
  int64_t begin = 0, size = 0;
};
inline PieceRange piece_range(const ScatterPart& part, int64_t rank) {
  const int64_t begin = std::min(part.numel, rank * part.piece);
  return {begin, std::min(part.numel, begin + part.piece) - begin};
}

}  // namespace tessera::comm
