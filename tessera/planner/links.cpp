#include "tessera/planner/links.h"

#include <algorithm>

namespace tessera::planner {
namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;

// Ranks of the group that are on one node.
int64_t in_node(const Cluster& cluster, const Group& group) {
  return std::clamp<int64_t>(cluster.devices_per_node / group.stride, 1, group.size);
}

}  // namespace

double gather_seconds(const Cluster& cluster, double bytes, const Group& group) {
  if (group.size <= 1) return 0.0;
  const auto size = static_cast<double>(group.size), near = static_cast<double>(in_node(cluster, group));
  const double sent = bytes * (size - 1) / size;
  const double within = near > 1 ? sent / (cluster.device.node_gb_s * kGiga) : 0.0;
  const double latency_within = (near - 1) * cluster.node_latency_us * kMicro;
  if (near == size) return within + latency_within;
  const double across = sent / (near * cluster.network_gb_s * kGiga);
  return std::max(within, across) + latency_within + (size / near - 1) * cluster.network_latency_us * kMicro;
}

double exchange_seconds(const Cluster& cluster, double bytes, const Group& group) {
  if (group.size <= 1) return 0.0;
  const auto size = static_cast<double>(group.size), near = static_cast<double>(in_node(cluster, group));
  const double within = bytes * (near - 1) / size / (cluster.device.node_gb_s * kGiga);
  if (near == size) return within + cluster.node_latency_us * kMicro;
  const double across = bytes * (size - near) / size / (cluster.network_gb_s * kGiga);
  return std::max(within, across) + cluster.network_latency_us * kMicro;
}

double message_seconds(const Cluster& cluster, double bytes, const Group& group) {
  if (group.size <= 1) return 0.0;
  const bool is_near = in_node(cluster, group) == group.size;
  return bytes / ((is_near ? cluster.device.node_gb_s : cluster.network_gb_s) * kGiga) +
         (is_near ? cluster.node_latency_us : cluster.network_latency_us) * kMicro;
}

}  // namespace tessera::planner
