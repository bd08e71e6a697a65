// A pipeline schedule as data: the actions of every rank, in their order. Pure functions make schedules;
// executor.h runs them, and simulate.h simulates them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/schedule_kind.h"

namespace tessera::parallel {

enum class ActionKind {
  Forward,
  Backward,        // the gradients of the input and of the weights
  InputGradient,   // the first half of a split Backward: the gradient of the input
  WeightGradient,  // the second half: the gradients of the weights, which no other rank waits for
};

struct Action {
  ActionKind kind = ActionKind::Forward;
  int64_t stage = 0;
  int64_t micro_batch = 0;
  bool operator==(const Action&) const = default;
};

// Returns "forward of micro-batch 2 in stage 1", say, for messages.
std::string describe(const Action& action);

// The actions of all ranks. Stage s lies on rank s % num_ranks.
struct Schedule {
  int64_t num_ranks = 1;
  int64_t num_stages = 1;
  int64_t num_micro_batches = 1;
  bool has_backward = true;
  std::vector<std::vector<Action>> actions;  // by rank

  int64_t rank_of(int64_t stage) const { return stage % num_ranks; }
};

// A tensor that goes from stage to stage: the output of the stage before, or the gradient of this stage's
// output from the stage behind it.
struct Message {
  bool is_gradient = false;
  int64_t stage = 0;  // the stage that reads it
  int64_t micro_batch = 0;
  auto operator<=>(const Message&) const = default;
};

// received_by() returns the message that the action has to wait for, sent_by() the one that it sends; nullopt
// if there is none.
std::optional<Message> received_by(const Schedule& schedule, const Action& action);
std::optional<Message> sent_by(const Schedule& schedule, const Action& action);

struct ScheduleSizes {
  int64_t num_ranks = 1;
  int64_t stages_per_rank = 1;  // virtual stages; above 1 for Interleaved, GPipe and ZeroBubble
  int64_t num_micro_batches = 1;
};

// Makes a schedule of any sizes from 1 on, also with fewer micro-batches than ranks or with a number that is
// no multiple of them.
//  - GPipe (Huang et al., 2019): all forwards, then all backwards.
//  - OneFOneB (Narayanan et al., 2019, "PipeDream-Flush"): a rank holds at most num_ranks - rank
//    micro-batches.
//  - Interleaved (Narayanan et al., 2021): several stages a rank, which shorten the bubble by their number.
//    The order is that for a multiple of num_ranks micro-batches; for another number, the actions of the
//    micro-batches that do not exist are left out.
//  - ZeroBubble (Qi et al., 2024, "ZB-H1"): the order of 1F1B or, with several stages a rank, of Interleaved,
//    with every backward split in two: weight gradients fill the bubble, and every rank needs the memory of
//    1F1B's first rank.
//
// Throws Error(Config, "SCHEDULE") for a size below 1 and for OneFOneB with several stages a rank.
Schedule make_schedule(PipelineKind kind, const ScheduleSizes& sizes);

// Makes a schedule of forwards alone, for evaluation.
Schedule make_forward_schedule(const ScheduleSizes& sizes);

}  // namespace tessera::parallel
