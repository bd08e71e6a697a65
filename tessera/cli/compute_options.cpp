#include "tessera/cli/compute_options.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/config/schema.h"
#include "tessera/core/device.h"
#include "tessera/core/error.h"
#include "tessera/core/named_device.h"

namespace tessera::cli {

namespace {

// What a recipe's key `device` takes, in the order of its table.
const config::Key<config::Recipe>& device_key() {
  const auto keys = config::recipe_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [](const auto& key) { return key.name == "device"; });
  TESSERA_ASSERT(found != keys.end(), "the key of the device");
  return *found;
}

DeviceChoice choice_of(const std::string& value) {
  for (const config::Choice& choice : device_key().choices) {
    if (choice.name == value) return static_cast<DeviceChoice>(choice.value);
  }
  throw Error(ErrorKind::Internal, "DEVICE", "a device that the option does not take").got(value);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const config::Choice& choice : device_key().choices) {
    if (choice.value != config::kNotBuilt) names.emplace_back(choice.name);
  }
  return names;
}

}  // namespace

void add_device(CLI::App& verb, std::string& value) {
  verb.add_option(
          "--device", value,
          "Where it computes: cpu, cuda, cuda:1 (of several devices that one), or auto (cuda where there is "
          "one)")
      ->check(CLI::IsMember(device_names()));
}

c10::Device device_named(const std::string& value) {
  const DeviceChoice choice = choice_of(value);
  const comm::LaunchInfo info = comm::launch_info();
  if (named_cuda_device(choice) >= 0 && info.size > 1) {
    throw Error(ErrorKind::Config, "DEVICE", "--device: a device by its number is one process's")
        .got(value + " and " + std::to_string(info.size) + " ranks")
        .need("cuda, of which the ranks of a machine take one each in turn")
        .hint("CUDA_VISIBLE_DEVICES says which ones they take");
  }
  return resolve_device(choice, info.local_rank);
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
