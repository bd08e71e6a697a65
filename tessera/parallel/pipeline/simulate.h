// How a schedule runs, without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/parallel/pipeline/schedule.h"

namespace tessera::parallel {

// Time of an action of one stage and micro-batch, in any unit; messages take none. A backward that is not
// split takes input_gradient + weight_gradient.
struct ActionCosts {
  int64_t forward = 1, input_gradient = 1, weight_gradient = 1;
  int64_t of(ActionKind kind) const;
};

struct Timeline {
  struct Slot {
    Action action;
    int64_t begin = 0, end = 0;
  };
  std::vector<std::vector<Slot>> slots;  // by rank, in order
  int64_t length = 0;                    // until the last rank is done
  double bubble_share = 0.0;             // of the ranks' time that they wait
  // By rank: the most micro-batches (times stages of the rank) whose activations it holds at once, from the
  // begin of the forward to the end of the backward, or of the weight gradient.
  std::vector<int64_t> peak_in_flight;
};

// Empty where the schedule can be run: every action once and on its rank, the messages between two stages in
// one order on both ends, and no rank waits for ever. Otherwise the first thing that is wrong.
std::string find_fault(const Schedule& schedule);

// Every rank starts an action when the one before is done and its input is there. The schedule must be
// without fault.
Timeline simulate(const Schedule& schedule, const ActionCosts& costs);

}  // namespace tessera::parallel
