#include "tessera/core/device_choice.h"

#include <charconv>

#include "tessera/core/strings.h"

namespace tessera {

std::optional<DeviceChoice> DeviceChoice::parse(std::string_view text) {
  const std::string name = lower(text);
  if (name == "auto") return DeviceChoice{DeviceKind::Auto};
  if (name == "cpu") return DeviceChoice{DeviceKind::Cpu};
  if (name == "cuda") return DeviceChoice{DeviceKind::Cuda};
  if (!name.starts_with("cuda:")) return std::nullopt;
  int number = -1;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + 5, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) return std::nullopt;
  return DeviceChoice{DeviceKind::Cuda, number};
}

std::string DeviceChoice::text() const {
  switch (kind) {
    case DeviceKind::Auto: return "auto";
    case DeviceKind::Cpu: return "cpu";
    case DeviceKind::Cuda: break;
  }
  return number < 0 ? "cuda" : "cuda:" + std::to_string(number);
}

Error one_process_only(const DeviceChoice& device, int64_t num_ranks) {
  Error error(ErrorKind::Config, "DEVICE", "a device with a number is for a single process");
  error.got("device " + device.text() + " and " + std::to_string(num_ranks) + " ranks")
      .need("cuda, which gives each rank of a machine one device in turn")
      .hint("CUDA_VISIBLE_DEVICES selects the devices");
  return error;
}

}  // namespace tessera
