#include "tessera/cli/compute_options.h"

#include <CLI/CLI.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/device.h"

namespace tessera::cli {

void add_device(CLI::App& verb, std::string& value) {
  verb.add_option("--device", value, "Where it computes: cpu, cuda, or auto (cuda where LibTorch finds one)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

c10::Device device_named(const std::string& value) {
  const DeviceChoice choice = value == "cuda"  ? DeviceChoice::Cuda
                              : value == "cpu" ? DeviceChoice::Cpu
                                               : DeviceChoice::Auto;
  return resolve_device(choice, comm::launch_info().local_rank);
}

c10::TensorOptions ComputeOptions::resolved() const {
  const auto type = dtype == "bf16" ? at::kBFloat16 : dtype == "fp64" ? at::kDouble : at::kFloat;
  return c10::TensorOptions(device_named(device)).dtype(type);
}

void add_compute_options(CLI::App& verb, ComputeOptions& options) {
  verb.add_option("--dtype", options.dtype, "Type of the weights and the cache: fp32, bf16 or fp64")
      ->check(CLI::IsMember({"fp32", "bf16", "fp64"}));
  add_device(verb, options.device);
}

}  // namespace tessera::cli
