#include "tessera/planner/cluster.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"
#include "tessera/config/scalar.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/strings.h"
#include "tessera/planner/constants.h"

namespace tessera::planner {
namespace {

// Larger clusters would take a search longer than a few seconds.
constexpr int64_t kMostDevices = 1 << 16;

using config::Node;
using config::Problems;

struct Number {
  std::string_view name;
  double& value;
  double low, high;
  bool is_whole = false;
};

// A rate below a kilobyte a second, or above what light carries, is a slip of the unit.
std::vector<Number> numbers_of(Cluster& cluster, double& nodes, double& per_node) {
  Device& device = cluster.device;
  return {{"nodes", nodes, 1, 1e5, true},
          {"devices_per_node", per_node, 1, 1024, true},
          {"memory_gib", device.memory_gib, 0.25, 1e5},
          {"memory_gb_s", device.memory_gb_s, 1e-3, 1e6},
          {"fp32_tflops", device.fp32_tflops, 1e-6, 1e6},
          {"bf16_tflops", device.bf16_tflops, 0, 1e6},
          {"fp16_tflops", device.fp16_tflops, 0, 1e6},
          {"fp8_tflops", device.fp8_tflops, 0, 1e6},
          {"product_share", device.product_share, 0.01, 1},
          {"attention_share", device.attention_share, 0.01, 1},
          {"link_share", cluster.link_share, 0.01, 1},
          {"kernel_start_us", cluster.kernel_start_us, 0, 1e6},
          {"node_gb_s", device.node_gb_s, 1e-6, 1e5},
          {"node_latency_us", cluster.node_latency_us, 0, 1e6},
          {"host_gb_s", device.host_gb_s, 1e-6, 1e5},
          {"network_gb_s", cluster.network_gb_s, 1e-6, 1e5},
          {"network_latency_us", cluster.network_latency_us, 0, 1e6},
          {"host_memory_gib", cluster.host_memory_gib, 0, 1e6},
          {"nvme_gib", cluster.nvme_gib, 0, 1e8},
          {"nvme_gb_s", cluster.nvme_gb_s, 0, 1e4},
          {"context_gib", cluster.context_gib, 0, 1e3},
          {"watts", device.watts, 0, 1e5},
          {"price_per_hour", cluster.price_per_hour, 0, 1e6}};
}

Error error_at(std::string_view name, const std::string& what, const config::Place& place) {
  return config::config_error(name, what, place);
}

void read_number(const Node& value, const Number& number, Problems& problems) {
  const std::string key = "key '" + std::string(number.name) + "': ";
  const auto refuse = [&](std::string_view name, const std::string& what) -> Error& {
    return problems.add(number.name, config::to_key_place(value.place),
                        error_at(name, key + what, value.place).got(config::describe(value)));
  };
  const auto read = value.is_scalar() && !value.is_quoted ? config::parse_number(value.text) : std::nullopt;
  if (!read) {
    refuse("TYPE", "not a number").need("a number");
  } else if (!(*read >= number.low && *read <= number.high)) {
    refuse("RANGE", "out of range")
        .need("from " + config::format_number(number.low) + " to " + config::format_number(number.high));
  } else if (number.is_whole && *read != static_cast<double>(static_cast<int64_t>(*read))) {
    refuse("TYPE", "not a whole number").need("a whole number");
  } else {
    number.value = *read;
  }
}

std::string known_names() {
  std::vector<std::string> names;
  for (const Device& device : known_devices()) names.push_back(device.name);
  return join(names, ", ");
}

// Reads the keys of a cluster, and collects all that is wrong with them.
class ClusterReader {
 public:
  ClusterReader(const Node& root, std::string_view file_name) : root_(root), file_name_(file_name) {}

  Cluster read() {
    cluster_.device.product_share = kShareOther;
    cluster_.device.attention_share = cluster_.device.flash2_share = kAttention;
    const bool is_known = read_device();
    read_numbers();
    check_size();
    require_numbers(is_known);
    check_room();
    problems_.settle();
    return cluster_;
  }

 private:
  // Returns whether the device is one of those that are known by name.
  bool read_device() {
    const config::Entry* const entry = root_.find("device");
    if (entry == nullptr) {
      require("device", "the name of one of " + known_names() + ", or of a device of your own");
    } else if (!entry->value.is_scalar() || entry->value.text.empty()) {
      refuse(*entry, "TYPE", "not a name").need("the name of a device; all nodes have the same ones");
    } else if (const Device* known = find_device(entry->value.text)) {
      cluster_.device = *known;
      return true;
    } else {
      cluster_.device.name = entry->value.text;
    }
    return false;
  }

  void read_numbers() {
    double nodes = 1, per_node = 1;
    const std::vector<Number> numbers = numbers_of(cluster_, nodes, per_node);
    std::vector<std::string> names = {"device"};
    for (const Number& number : numbers) names.emplace_back(number.name);
    for (const config::Entry& entry : root_.entries) {
      if (entry.key == "device") continue;
      const auto number = std::ranges::find(numbers, entry.key, &Number::name);
      if (number != numbers.end()) {
        read_number(entry.value, *number, problems_);
        continue;
      }
      const std::string near = nearest_name(entry.key, names);
      problems_.add(
          entry.key, config::to_key_place(entry.key_place),
          error_at("UNKNOWN-KEY", "unknown key '" + entry.key + "'", entry.key_place)
              .hint(near.empty() ? "known keys: " + join(names, ", ") : "did you mean '" + near + "'?"));
    }
    cluster_.nodes = static_cast<int64_t>(nodes);
    cluster_.devices_per_node = static_cast<int64_t>(per_node);
  }

  void check_size() {
    if (cluster_.size() <= kMostDevices) return;
    problems_.add("nodes", {std::string(file_name_)},
                  Error(ErrorKind::Config, "RANGE", "too many devices")
                      .at(file_name_)
                      .got(std::to_string(cluster_.size()))
                      .need("at most " + std::to_string(kMostDevices)));
  }

  // Requires the numbers that nothing else gives.
  void require_numbers(bool is_known) {
    if (!is_known && !cluster_.device.name.empty()) {
      const std::string why =
          "'" + cluster_.device.name + "' is none of the devices that are known (" + known_names() + ")";
      for (const char* const key : {"memory_gib", "memory_gb_s", "fp32_tflops"}) require(key, why);
      if (cluster_.devices_per_node > 1) require("node_gb_s", why);
    }
    if (cluster_.nodes > 1) require("network_gb_s", "nodes are linked by something; of one device, each way");
    if (cluster_.nvme_gib > 0) require("nvme_gb_s", "the drive has a rate");
  }

  // Checks that a drive has a rate, and that a process leaves room on a device.
  void check_room() {
    if (const config::Entry* const entry = given("nvme_gb_s");
        entry != nullptr && cluster_.nvme_gib > 0.0 && cluster_.nvme_gb_s <= 0.0)
      refuse(*entry, "RANGE", "no states come from a drive that does not move bytes").need("a rate above 0");
    if (const config::Entry* const entry = given("context_gib");
        entry != nullptr && cluster_.device.memory_gib > 0.0 &&
        cluster_.context_gib >= cluster_.device.memory_gib)
      refuse(*entry, "RANGE", "a process would fill the device before it holds a tensor")
          .need("less than the device's " + config::format_number(cluster_.device.memory_gib) + " GiB");
  }

  // Returns the entry of a key; null if it is absent or has a problem already.
  const config::Entry* given(const char* key) const { return problems_.has(key) ? nullptr : root_.find(key); }
  void require(const std::string& key, const std::string& why) {
    if (root_.find(key) != nullptr || problems_.has(key)) return;
    problems_.add(key, {std::string(file_name_)},
                  Error(ErrorKind::Config, "MISSING", "key '" + key + "' is missing: " + why).at(file_name_));
  }
  Error& refuse(const config::Entry& entry, std::string_view name, const std::string& what) {
    return problems_.add(entry.key, config::to_key_place(entry.value.place),
                         error_at(name, "key '" + entry.key + "': " + what, entry.value.place)
                             .got(config::describe(entry.value)));
  }

  const Node& root_;
  std::string_view file_name_;
  Problems problems_;
  Cluster cluster_;
};

}  // namespace

Cluster parse_cluster(std::string_view text, std::string_view file_name) {
  config::Place file;
  file.file = std::make_shared<const std::string>(file_name);
  const Node root = config::parse_yaml(text, file);
  if (!root.is_map()) {
    throw Error(ErrorKind::Config, "TYPE", "a cluster is a map of keys")
        .at(file_name)
        .got(config::describe(root))
        .need("key: value lines, such as 'device: H100' and 'devices_per_node: 8'");
  }
  return ClusterReader(root, file_name).read();
}

Cluster load_cluster(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) return parse_cluster(config::read_config_file(name), name);
  // NODESxDEVICESxNAME, or DEVICESxNAME, or NAME
  std::vector<std::string> parts(1);
  for (const char c : name) {
    const bool ends = (c == 'x' || c == 'X') && parts.size() < 3 && !parts.back().empty() &&
                      parts.back().find_first_not_of("0123456789") == std::string::npos;
    if (ends) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  Cluster cluster;
  const Device* const device = find_device(parts.back());
  std::vector<int64_t> counts;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const config::ParsedInteger count = config::parse_integer(parts[i]);
    const bool is_count =
        count.status == config::IntegerStatus::Ok && count.value >= 1 && count.value <= 100'000;
    counts.push_back(is_count ? count.value : 0);
  }
  if (device == nullptr || std::find(counts.begin(), counts.end(), 0) != counts.end()) {
    throw Error(ErrorKind::Config, "CLUSTER", "no cluster: neither a file nor the name of devices")
        .at("command line")
        .got("'" + name + "'")
        .need("a YAML file, a name such as 8xH100 or 64x8xH100, or cpu to 1024xcpu; the devices are " +
              known_names());
  }
  cluster.device = *device;
  cluster.network_gb_s = kUsualNetwork;
  if (!counts.empty()) cluster.devices_per_node = counts.back();
  if (counts.size() > 1) cluster.nodes = counts.front();
  if (cluster.size() > kMostDevices) {
    throw Error(ErrorKind::Config, "CLUSTER", "too many devices")
        .at("command line")
        .got("'" + name + "'")
        .need("at most " + std::to_string(kMostDevices));
  }
  return cluster;
}

std::string cluster_yaml(const Cluster& cluster) {
  Cluster copy = cluster;
  auto nodes = static_cast<double>(cluster.nodes), per_node = static_cast<double>(cluster.devices_per_node);
  std::string text = "device: " + cluster.device.name + "\n";
  for (const Number& number : numbers_of(copy, nodes, per_node)) {
    // A link that is not there has no rate.
    if (number.value < number.low) continue;
    char value[32];
    std::snprintf(value, sizeof value, "%.6g", number.value);
    text += std::string(number.name) + ": " + value + "\n";
  }
  return text;
}

}  // namespace tessera::planner
