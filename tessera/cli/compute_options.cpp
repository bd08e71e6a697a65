#include "tessera/cli/compute_options.h"

#include <CLI/CLI.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/device/device.h"

namespace tessera::cli {

void add_device(CLI::App& verb, std::string& value) {
  verb.add_option("--device", value,
                  "Device: cpu, cuda, cuda:1 (one particular GPU), or auto (a GPU if there is one)")
      ->check([](const std::string& text) {
        return DeviceChoice::parse(text) ? "" : text + " is none of auto, cpu, cuda, cuda:0, cuda:1, ...";
      });
}

c10::Device device_named(const std::string& value) {
  const DeviceChoice choice = DeviceChoice::parse(value).value();
  const comm::LaunchInfo info = comm::launch_info();
  if (choice.number >= 0 && info.size > 1) throw one_process_only(choice, info.size);
  return resolve_device(choice, info.local_rank);
}

c10::TensorOptions ComputeOptions::resolved() const {
  const auto type = dtype == "bf16" ? at::kBFloat16 : dtype == "fp64" ? at::kDouble : at::kFloat;
  return c10::TensorOptions(device_named(device)).dtype(type);
}

void add_compute_options(CLI::App& verb, ComputeOptions& options) {
  verb.add_option("--dtype", options.dtype, "Data type of the weights and the KV cache: fp32, bf16 or fp64")
      ->check(CLI::IsMember({"fp32", "bf16", "fp64"}));
  add_device(verb, options.device);
}

}  // namespace tessera::cli
