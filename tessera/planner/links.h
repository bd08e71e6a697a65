// The time of messages between the ranks of an axis, which ranks of a node share its links for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/planner/cluster.h"

namespace tessera::planner {

// The ranks of one axis: `size` of them, each `stride` ranks behind the one before. Rank r is device
// r % devices_per_node of its node.
struct Group {
  int64_t size = 1, stride = 1;
  bool operator==(const Group&) const = default;
};

// The time that a collective or a message takes of a rank's links, which work at once: seconds on the link
// within the node and on that to other nodes, and seconds in which no bytes move; and the bytes that a rank
// sends.
struct Transfer {
  double node_s = 0.0, network_s = 0.0, latency_s = 0.0, bytes_sent = 0.0;

  double seconds() const { return std::max(node_s, network_s) + latency_s; }
  // Returns `count` of them, one after the other.
  Transfer times(double count) const {
    return {node_s * count, network_s * count, latency_s * count, bytes_sent * count};
  }
};

// An all-gather or a reduce-scatter of `bytes` (what a rank has after or before it), by rings. The ranks of a
// node that are in the group use their own links to the network together.
Transfer gather(const Cluster& cluster, double bytes, const Group& group);
// An all-to-all in which a rank keeps 1 / size of its `bytes`.
Transfer exchange(const Cluster& cluster, double bytes, const Group& group);
// A message to the next rank of the group.
Transfer message(const Cluster& cluster, double bytes, const Group& group);

}  // namespace tessera::planner
