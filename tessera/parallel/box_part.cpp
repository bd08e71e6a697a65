#include "tessera/parallel/box_part.h"

#include <ATen/ATen.h>

namespace tessera::parallel {

at::Tensor box_part(at::Tensor whole, const Box& box) {
  for (size_t d = 0; d < box.size.size(); ++d) {
    whole = whole.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  }
  return whole;
}

}  // namespace tessera::parallel
