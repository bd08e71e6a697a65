#include "tessera/train/run/this_processor.h"

#include "tessera/core/process_stats.h"
#include "tessera/device/device.h"
#include "tessera/measure/device_rates.h"
#include "tessera/measure/speed_of_light.h"

namespace tessera::train {
namespace {

constexpr double kGib = 0x1p30;

}  // namespace

double copy_rate(int64_t copy_bytes) {
  double rate = 0.0;
  for (const measure::DeviceRate& measured :
       measure::measure_device_rates(kHost, {.size = 64, .copy_bytes = copy_bytes, .rounds = 3})) {
    if (measured.name == "copy on the device") rate = measured.value;
  }
  return rate;
}

ProcessorRates measure_processor() {
  return {1e-3 * measure::gemm_rate(at::kFloat), 1e-3 * measure::gemm_rate(at::kBFloat16),
          copy_rate(int64_t{1} << 28)};
}

planner::Cluster this_processor(int64_t ranks, const ProcessorRates& of_rank) {
  planner::Cluster cluster;
  cluster.devices_per_node = ranks;
  planner::Device& device = cluster.device;
  device.name = "this processor";
  device.memory_gib = static_cast<double>(usable_memory_bytes()) / kGib / static_cast<double>(ranks);
  device.fp32_tflops = of_rank.fp32_tflops;
  device.bf16_tflops = of_rank.bf16_tflops;
  device.memory_gb_s = of_rank.memory_gb_s;
  // A message is written and read once.
  device.node_gb_s = device.host_gb_s = device.memory_gb_s / 2.0;
  // The rates are those that products and messages reach, and work starts in no time.
  device.product_share = cluster.link_share = 1.0;
  cluster.kernel_start_us = 0.0;
  device.attention_share = device.flash2_share = 0.6;
  cluster.context_gib = static_cast<double>(current_rss_bytes()) / kGib;
  return cluster;
}

}  // namespace tessera::train
