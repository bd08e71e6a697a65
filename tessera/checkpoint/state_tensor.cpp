#include "tessera/checkpoint/state_tensor.h"

#include <utility>

#include <ATen/ATen.h>

namespace tessera::checkpoint {

StateTensor state_tensor(std::string name, parallel::Layout layout, std::vector<int64_t> coordinates,
                         const at::Tensor& values) {
  const at::Tensor own = values.detach();
  return {std::move(name), std::move(layout), std::move(coordinates), [own] { return own; },
          [own](const at::Tensor& taken) {
            const at::NoGradGuard no_grad;
            if (!taken.is_same(own)) own.copy_(taken);
          }};
}

}  // namespace tessera::checkpoint
