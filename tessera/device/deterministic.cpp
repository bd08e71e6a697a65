#include "tessera/device/deterministic.h"

#include <ATen/Context.h>

#include "tessera/core/environment.h"

namespace tessera {

void compute_deterministically() {
  environment::set_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // This would fill new memory, which is written before anyone reads it in any case.
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace tessera
