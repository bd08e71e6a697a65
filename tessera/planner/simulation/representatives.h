// Chooses a few ranks whose step stands for that of all.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/planner/choice.h"
#include "tessera/planner/step_parts.h"

namespace tessera::planner {

// The devices that are slower than the others, by a factor of at least 1.
struct Disturbances {
  std::map<int64_t, double> slow_ranks;     // the time of a rank's compute
  std::map<int64_t, double> slow_networks;  // by node: the time that bytes take to and from other nodes

  // Returns the ranks that differ from the others.
  std::vector<int64_t> ranks(int64_t devices_per_node, int64_t num_ranks) const;
};

// Returns ranks in ascending order, such that each rank does in each moment what one of them does. Without
// `special` ranks, which differ from the others, these are one of each stage of the pipeline. The members of
// a group among them stand for all members of that group. All groups are unchanged when the coordinates of
// ranks along an axis change places, so coordinates of which no special rank has one need one representative;
// an axis whose groups are not nested in each other (expert groups that cut across context parallelism) keeps
// all of its coordinates.
std::vector<int64_t> representatives(const Choice& choice, const AxisGroups& groups,
                                     const std::vector<int64_t>& special);

}  // namespace tessera::planner
