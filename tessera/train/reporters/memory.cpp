#include "tessera/train/reporters/memory.h"

#include <ATen/ATen.h>

#include "tessera/core/process_stats.h"

namespace tessera::train {

void Memory::on_step(const TrainState&, StepMetrics& metrics) {
  const at::Tensor peak =
      at::full({1}, peak_rss_bytes(), at::TensorOptions(world_.device()).dtype(at::kLong));
  world_.all_reduce(peak, false, {.op = comm::ReduceOp::Max});
  metrics.peak_rss = peak.item<int64_t>();
}

}  // namespace tessera::train
