#include "tessera/train/reporters/memory.h"

#include <ATen/ATen.h>

#include "tessera/core/process_stats.h"
#include "tessera/device/device_memory.h"
#include "tessera/device/host_memory.h"

namespace tessera::train {

void Memory::on_step(const TrainState&, StepMetrics& metrics) {
  metrics.peak_rss = peak_rss_bytes();
  metrics.peak_device = device_memory(world_.device()).peak_bytes;
  if (world_.size() == 1) return;
  const at::Tensor peaks = at::tensor({metrics.peak_rss, metrics.peak_device}, on_host(at::kLong));
  world_.all_reduce(peaks, false, {.op = comm::ReduceOp::Max});
  const auto values = host_span<const int64_t>(peaks);
  metrics.peak_rss = values[0];
  metrics.peak_device = values[1];
}

void Memory::on_line(const StepMetrics&) { reset_device_peak(world_.device()); }

}  // namespace tessera::train
