// The options of verbs that compute: on which device, and in which type.
#pragma once

#include <string>

#include <c10/core/TensorOptions.h>

namespace CLI {
class App;
}

namespace tessera::cli {

// --device: what a recipe's key `device` takes, in `value`.
void add_device(CLI::App& verb, std::string& value);
// What it names, for this process (core/device.h). Throws E-CONFIG-DEVICE where that cannot be used.
c10::Device device_named(const std::string& value);

// How a verb runs a model: --dtype fp32 (the default), bf16 or fp64, and --device.
struct ComputeOptions {
  std::string dtype = "fp32", device = "auto";
  // Throws E-CONFIG-DEVICE: call it before anything is read.
  c10::TensorOptions resolved() const;
};
void add_compute_options(CLI::App& verb, ComputeOptions& options);

}  // namespace tessera::cli
