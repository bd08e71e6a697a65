// The time of messages between the ranks of an axis, which ranks of a node share its links for.
#pragma once

#include <cstdint>

#include "tessera/planner/cluster.h"

namespace tessera::planner {

// The ranks of one axis: `size` of them, each `stride` ranks behind the one before. Rank r is device
// r % devices_per_node of its node.
struct Group {
  int64_t size = 1, stride = 1;
};

// Returns the seconds of an all-gather or a reduce-scatter of `bytes` (what a rank has after or before it),
// by rings: the slower one of the links within nodes and those between them. The ranks of a node that are in
// the group use their own links to the network together.
double gather_seconds(const Cluster& cluster, double bytes, const Group& group);
// Returns the seconds of an all-to-all in which a rank keeps 1 / size of its `bytes`.
double exchange_seconds(const Cluster& cluster, double bytes, const Group& group);
// Returns the seconds of a message to the next rank of the group.
double message_seconds(const Cluster& cluster, double bytes, const Group& group);

}  // namespace tessera::planner
