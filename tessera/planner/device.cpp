#include "tessera/planner/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "tessera/core/strings.h"
#include "tessera/planner/constants.h"

namespace tessera::planner {
namespace {

std::string plain(std::string_view name) {
  std::string text = lower(name);
  std::erase_if(text, [](char c) { return c == ' ' || c == '-' || c == '_'; });
  return text;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kOtherNames = {
    {{"a100", "a10080gb"},
     {"a10080", "a10080gb"},
     {"a10040", "a10040gb"},
     {"h10080gb", "h100"},
     {"h100sxm", "h100"},
     {"h10096", "h10096gb"},
     {"rtx4090", "4090"},
     {"rtx3090", "3090"},
     {"tesla t4", "t4"},
     {"v10032gb", "v100"},
     {"mi300", "mi300x"},
     {"rtxtitan", "titanrtx"},
     {"h200sxm", "h200"}}};

}  // namespace

std::string_view precision_name(Precision precision) {
  constexpr std::array<std::string_view, 4> kNames = {"float32", "bfloat16", "float16", "fp8"};
  return kNames[static_cast<size_t>(precision)];
}

double Device::tflops(Precision precision) const {
  switch (precision) {
    case Precision::BFloat16: return bf16_tflops;
    case Precision::Float16: return fp16_tflops;
    case Precision::Fp8: return fp8_tflops;
    default: return fp32_tflops;
  }
}

// Peaks and bandwidths are those of the vendors' data sheets. GeForce cards and the Titan are listed with the
// rates of products that sum in float32. The H100 of 96 GB is the one of torchtitan's measurements, with
// slower memory and a limit of 500 W. The interconnect is NVLink or Infinity Fabric where there is one, else
// PCI Express. Memory is in GiB as drivers show it, a little less than the name says.
const std::vector<Device>& known_devices() {
  static const std::vector<Device> devices = {
      // name, GiB, GB/s; TFLOP/s in fp32, bf16, fp16, fp8; GB/s to the node, to the host; W; shares
      {"V100", 31.7, 900, 15.7, 0, 125, 0, 150, 12, 300, kShareOther, kAttention, kAttention},
      {"T4", 14.6, 320, 8.1, 0, 65, 0, 12, 12, 70, kShareOther, kAttention, kAttention},
      {"Titan RTX", 23.6, 672, 16.3, 0, 130.5, 0, 50, 12, 280, kShareOther, kAttention, kAttention},
      {"A100-40GB", 39.4, 1555, 19.5, 312, 312, 0, 300, 25, 400, kShareA100, kAttention, kAttention},
      {"A100-80GB", 79.2, 2039, 19.5, 312, 312, 0, 300, 25, 400, kShareA100, kAttention, kAttention},
      {"3090", 23.6, 936, 35.6, 71.2, 71.2, 0, 56, 25, 350, kShareOther, kAttention, kAttention},
      {"4090", 23.5, 1008, 82.6, 165.2, 165.2, 330.3, 25, 25, 450, kShareOther, kAttention, kAttention},
      {"L40S", 44.4, 864, 91.6, 362, 362, 733, 25, 25, 350, kShareOther, kAttention, kAttention},
      {"H100", 79.2, 3350, 66.9, 989.4, 989.4, 1978.9, 450, 50, 700, kShareH100, kHopperAttention,
       kHopperFlash2},
      {"H100-96GB", 95.0, 2400, 66.9, 989.4, 989.4, 1978.9, 450, 50, 500, kShareH100, kHopperAttention,
       kHopperFlash2},
      {"H200", 139.8, 4800, 66.9, 989.4, 989.4, 1978.9, 450, 50, 700, kShareH100, kHopperAttention,
       kHopperFlash2},
      {"MI300X", 191.5, 5300, 163.4, 1307.4, 1307.4, 2614.9, 448, 50, 750, kShareOther, kAttention,
       kAttention},
      {"B200", 178.3, 7700, 75, 2250, 2250, 4500, 900, 50, 1000, kShareOther, kAttention, kAttention},
  };
  return devices;
}

const Device* find_device(std::string_view name) {
  std::string wanted = plain(name);
  for (const auto& [other, known] : kOtherNames) {
    if (wanted == plain(other)) wanted = known;
  }
  for (const Device& device : known_devices()) {
    if (plain(device.name) == wanted) return &device;
  }
  return nullptr;
}

std::vector<std::string> device_table() {
  std::vector<std::string> lines = {
      "| device | other names | GiB | GB/s | TFLOP/s in float32 | bf16 | fp16 | fp8 | GB/s in the node | to "
      "the "
      "host | W |",
      "|---|---|---|---|---|---|---|---|---|---|---|"};
  const auto number = [](double value) {
    char text[24];
    std::snprintf(text, sizeof text, "%g", value);
    return value > 0.0 ? std::string(text) : "-";
  };
  for (const Device& device : known_devices()) {
    std::vector<std::string> others;
    for (const auto& [other, known] : kOtherNames) {
      if (known == plain(device.name)) others.emplace_back(other);
    }
    std::vector<std::string> cells = {device.name, join(others, ", ")};
    for (const double value :
         {device.memory_gib, device.memory_gb_s, device.fp32_tflops, device.bf16_tflops, device.fp16_tflops,
          device.fp8_tflops, device.node_gb_s, device.host_gb_s, device.watts})
      cells.push_back(number(value));
    lines.push_back("| " + join(cells, " | ") + " |");
  }
  return lines;
}

}  // namespace tessera::planner
