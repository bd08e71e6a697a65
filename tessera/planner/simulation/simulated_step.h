// A training step as an event simulation: compute, collectives on shared links, overlap, and slow devices.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tessera/planner/simulation/event_loop.h"
#include "tessera/planner/simulation/program.h"
#include "tessera/planner/simulation/representatives.h"

namespace tessera::planner {

struct SimulatedStep {
  double seconds = 0.0;           // until the last rank is done
  std::vector<Program> programs;  // by place in the pipeline
  // One for each kind of rank: all others do in each moment what one of these does.
  std::vector<RankTrace> ranks;
};

// Simulates one step with the parts that step_time() sums up. Needs a choice that makes a step on the
// cluster, and disturbances of ranks and nodes that there are. Throws Error(Config, "SIMULATION") for one
// with too many items to hold.
SimulatedStep simulate_step(const ModelWork& work, const Cluster& cluster, const Job& job,
                            const Choice& choice, const Disturbances& disturbances = {},
                            const Software& software = kTessera);

// Divides the time of a rank's step into what its compute does and what it waits for; they add up to the
// step.
struct RankTimes {
  std::array<double, kNumActivities> busy{};   // in the stream of compute
  std::array<double, kNumActivities> waits{};  // that stream waited for an activity to end
  double peers = 0.0;                          // it waited for other ranks to come

  double total() const;
};
RankTimes times_of(const SimulatedStep& step, const RankTrace& trace);

// Writes the step for Perfetto or chrome://tracing: a process for each rank of `step` up to `most_ranks`,
// with a row for each stream.
std::string timeline_json(const SimulatedStep& step, size_t most_ranks = 64);

}  // namespace tessera::planner
