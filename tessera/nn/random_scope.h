// Where in the run a dropout site stands, so that its mask is a pure function of place.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera::nn {

struct RandomPlace {
  uint64_t seed = 0;
  uint64_t step = 0;         // optimizer step
  uint64_t micro_batch = 0;  // number of the micro-batch in the step, counted over all ranks
};

// While it lives, dropout sites of this thread draw their masks for `place`. It must span the forward and the
// backward pass of the micro-batch: recomputed activations then draw the same masks. Scopes nest.
class RandomScope {
 public:
  explicit RandomScope(const RandomPlace& place);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  const RandomPlace* outer_;
  RandomPlace place_;
};

// The innermost place of this thread, or null.
const RandomPlace* current_random_place();

// The columns from `first` on of rows of `width` elements; width 0 = whole rows.
struct RowPart {
  int64_t first = 0, width = 0;
};

// A mask of 0 and 1/(1-p) with x's shape and type for the site `stream` at the current place: element i is a
// function of (seed, step, micro_batch, stream, i). Where x holds a part of each row of a wider tensor, i is
// the element's place in that. Error(Internal) outside any RandomScope.
at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part = {});

}  // namespace tessera::nn
