// Options of the verbs that compute: the device, and the type.
#pragma once

#include <string>

#include <c10/core/TensorOptions.h>

namespace CLI {
class App;
}

namespace tessera::cli {

// Adds --device, which takes the values of a recipe's key `device`, into `value`.
void add_device(CLI::App& verb, std::string& value);
// Returns the device that `value` names for this process (device/device.h). Throws E-CONFIG-DEVICE if it
// cannot be used.
c10::Device device_named(const std::string& value);

// How a verb runs a model: --dtype (fp32, bf16 or fp64) and --device.
struct ComputeOptions {
  std::string dtype = "fp32", device = "auto";
  // Returns type and device. Throws E-CONFIG-DEVICE; call it before anything is read.
  c10::TensorOptions resolved() const;
};
void add_compute_options(CLI::App& verb, ComputeOptions& options);

}  // namespace tessera::cli
