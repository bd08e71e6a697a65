#include "tessera/planner/links.h"

namespace tessera::planner {
namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;

// Ranks of the group that are on one node.
int64_t in_node(const Cluster& cluster, const Group& group) {
  return std::clamp<int64_t>(cluster.devices_per_node / group.stride, 1, group.size);
}

double node_rate(const Cluster& cluster) { return cluster.device.node_gb_s * kGiga * cluster.link_share; }
double network_rate(const Cluster& cluster) { return cluster.network_gb_s * kGiga * cluster.link_share; }

}  // namespace

Transfer gather(const Cluster& cluster, double bytes, const Group& group) {
  Transfer transfer;
  if (group.size <= 1) return transfer;
  const auto size = static_cast<double>(group.size), near = static_cast<double>(in_node(cluster, group));
  const double sent = transfer.bytes_sent = bytes * (size - 1) / size;
  if (near > 1) transfer.node_s = sent / node_rate(cluster);
  transfer.latency_s = (near - 1) * cluster.node_latency_us * kMicro;
  if (near == size) return transfer;
  transfer.network_s = sent / (near * network_rate(cluster));
  transfer.latency_s += (size / near - 1) * cluster.network_latency_us * kMicro;
  return transfer;
}

Transfer exchange(const Cluster& cluster, double bytes, const Group& group) {
  Transfer transfer;
  if (group.size <= 1) return transfer;
  const auto size = static_cast<double>(group.size), near = static_cast<double>(in_node(cluster, group));
  transfer.bytes_sent = bytes * (size - 1) / size;
  transfer.node_s = bytes * (near - 1) / size / node_rate(cluster);
  const bool is_near = near == size;
  if (!is_near) transfer.network_s = bytes * (size - near) / size / network_rate(cluster);
  transfer.latency_s = (is_near ? cluster.node_latency_us : cluster.network_latency_us) * kMicro;
  return transfer;
}

Transfer message(const Cluster& cluster, double bytes, const Group& group) {
  Transfer transfer;
  if (group.size <= 1) return transfer;
  transfer.bytes_sent = bytes;
  const bool is_near = in_node(cluster, group) == group.size;
  double& seconds = is_near ? transfer.node_s : transfer.network_s;
  seconds = bytes / (is_near ? node_rate(cluster) : network_rate(cluster));
  transfer.latency_s = (is_near ? cluster.node_latency_us : cluster.network_latency_us) * kMicro;
  return transfer;
}

}  // namespace tessera::planner
