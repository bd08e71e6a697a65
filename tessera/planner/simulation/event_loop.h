// Runs the programs of ranks against each other, event by event.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/planner/simulation/program.h"
#include "tessera/planner/simulation/representatives.h"

namespace tessera::planner {

// The times of an item, in seconds from the start of the step.
struct Span {
  double ready = 0.0;  // it could begin, were the other ranks there
  double begin = 0.0, end = 0.0;
  Activity held_by = Activity::Forward;  // what it waited for last before `ready`
};

struct RankTrace {
  int64_t rank = 0, place = 0;  // in the pipeline
  std::vector<Span> spans;      // by item of the program
  double end = 0.0;
  // The links' own seconds: bytes over rates.
  double node_link_s = 0.0, network_link_s = 0.0;
};

// Runs one step of `ranks`, which representatives() has chosen, with the programs of their stages. Items of
// one rank's streams run beside each other. Transfers share the links of their ranks: where those that run at
// a time would need more than a link has, all of them slow down alike. Throws Error(Internal) if the programs
// wait for each other for ever.
std::vector<RankTrace> run_programs(const std::vector<Program>& programs, const std::vector<int64_t>& ranks,
                                    const AxisGroups& groups, int64_t devices_per_node,
                                    const Disturbances& disturbances);

}  // namespace tessera::planner
