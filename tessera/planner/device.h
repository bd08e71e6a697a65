// The devices that the planner knows by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::planner {

// Types in which products are computed.
enum class Precision { Float32, BFloat16, Float16, Fp8 };
std::string_view precision_name(Precision precision);

// One device, as its vendor states it: dense products (no sparsity), and bandwidths each way.
struct Device {
  std::string name;
  double memory_gib = 0.0;   // that a process sees
  double memory_gb_s = 0.0;  // 10^9 bytes/s
  // 10^12 operations/s of products that sum in float32; 0 where the device has none.
  double fp32_tflops = 0.0, bf16_tflops = 0.0, fp16_tflops = 0.0, fp8_tflops = 0.0;
  double node_gb_s = 0.0;  // to another device of the node
  double host_gb_s = 0.0;  // to the memory of the host
  double watts = 0.0;
  double product_share = 0.0;  // of the peak that large products reach (constants.h)
  // Shares of the peak that attention reaches, forward and backward together: by the device's own kernels,
  // and by FlashAttention-2, which PyTorch takes.
  double attention_share = 0.0, flash2_share = 0.0;

  double tflops(Precision precision) const;
};

// The table, in order of their age.
const std::vector<Device>& known_devices();
// Finds a device by its name or another usual one ("A100", "rtx4090"), without case, blanks, '-' and '_';
// null for an unknown name.
const Device* find_device(std::string_view name);

// Returns the table of the devices as lines of Markdown, which docs/planner.md has: the names by which each
// is found, and its rates.
std::vector<std::string> device_table();

}  // namespace tessera::planner
