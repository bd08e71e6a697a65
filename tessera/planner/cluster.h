// A cluster to plan for: equal nodes of equal devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/planner/constants.h"
#include "tessera/planner/device.h"

namespace tessera::planner {

struct Cluster {
  Device device;
  int64_t nodes = 1, devices_per_node = 1;
  // One way of a device's link: within a node it is device.node_gb_s.
  double node_latency_us = 3.0;
  double network_gb_s = 0.0;  // of one device, to other nodes
  double network_latency_us = 10.0;
  double link_share = kLinkShare;                 // of both links' rates that messages reach
  double kernel_start_us = kLaunchSeconds * 1e6;  // that the host takes to start a kernel
  double host_memory_gib = 0.0;                   // of a node; 0 = not known, and nothing is kept there
  double nvme_gib = 0.0, nvme_gb_s = 0.0;         // of a node's drive; 0 = none
  double context_gib = kContextGib;               // of a process, beside its tensors
  double price_per_hour = 0.0;                    // of a device; 0 = not known

  int64_t size() const { return nodes * devices_per_node; }
};

// Reads a cluster from YAML: `device` with a known name or a new one, and keys with the names of the fields
// of Device and Cluster, which replace those of a known device. Throws Error(Config), with a line for each
// problem: E-CONFIG-TYPE, -UNKNOWN-KEY, -RANGE, -MISSING, -VALUE, and what parse_yaml() throws.
Cluster parse_cluster(std::string_view text, std::string_view file_name);

// Returns the cluster that `name` stands for: a file, or "8xH100" or "64x8xH100" (nodes, devices of each),
// whose network is that of kUsualNetwork below. Throws Error(Config).
Cluster load_cluster(const std::string& name);

// Returns the cluster as the YAML that parse_cluster() reads, with all its keys.
std::string cluster_yaml(const Cluster& cluster);

// GB/s a device between nodes where only the name of a device is given: 400 Gbit/s each.
inline constexpr double kUsualNetwork = 50.0;
// GB/s of a node's drive where none is named: one of the fifth generation of PCI Express, both ways together.
inline constexpr double kUsualDrive = 6.0;

}  // namespace tessera::planner
