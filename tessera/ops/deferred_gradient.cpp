#include "tessera/ops/deferred_gradient.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/device/memory_scope.h"

namespace tessera::ops {
void DeferredGradients::run() {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Gradients);
  for (auto& product : std::exchange(products_, {})) {
    product();
    product = nullptr;  // frees the operands now
  }
}

}  // namespace tessera::ops
