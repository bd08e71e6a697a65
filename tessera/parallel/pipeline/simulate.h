// Checks and simulates schedules without running them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/parallel/pipeline/schedule.h"

namespace tessera::parallel {

// Times of the actions of one stage and micro-batch, in any unit; messages take no time. A backward that is
// not split takes input_gradient + weight_gradient.
struct ActionCosts {
  int64_t forward = 1, input_gradient = 1, weight_gradient = 1;
  int64_t of(ActionKind kind) const;
};

struct Timeline {
  struct Slot {
    Action action;
    int64_t begin = 0, end = 0;
  };
  std::vector<std::vector<Slot>> slots;  // by rank, in the order of time
  int64_t length = 0;                    // time until the last rank is done
  double bubble_share = 0.0;             // share of the ranks' time in which they wait
  // By rank: the largest number of forwards (micro-batches times stages of the rank) whose activations it
  // holds at once, from the start of the forward to the end of the backward or, if that is split, of the
  // weight gradient.
  std::vector<int64_t> peak_in_flight;
};

// Returns an empty string if the schedule can be run: every action occurs once and on its rank, the messages
// between two stages have the same order on both ends, and no rank waits for ever. Otherwise describes the
// first fault.
std::string find_fault(const Schedule& schedule);

// Simulates a schedule without fault, in which every rank starts an action when the one before is done and
// its input is there.
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

}  // namespace tessera::parallel
