// A pipeline schedule as data: what every rank computes, in which order. Made by pure functions, run by
// executor.h, simulated by simulate.h.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/pipeline_kind.h"

namespace tessera::parallel {

enum class ActionKind {
  Forward,
  Backward,        // the gradients of the input and of the weights
  InputGradient,   // the first half of a Backward that is split,
  WeightGradient,  // and the second, which nobody waits for
};

struct Action {
  ActionKind kind = ActionKind::Forward;
  int64_t stage = 0;
  int64_t micro_batch = 0;
  bool operator==(const Action&) const = default;
};

// "forward of micro-batch 2 in stage 1", for messages.
std::string describe(const Action& action);

// Stage s lies on rank s % num_ranks.
struct Schedule {
  int64_t num_ranks = 1;
  int64_t num_stages = 1;
  int64_t num_micro_batches = 1;
  bool has_backward = true;
  std::vector<std::vector<Action>> actions;  // by rank

  int64_t rank_of(int64_t stage) const { return stage % num_ranks; }
};

// What goes from stage to stage: the output of the stage before, or the gradient of this one's output from
// the one behind it.
struct Message {
  bool is_gradient = false;
  int64_t stage = 0;  // that reads it
  int64_t micro_batch = 0;
  auto operator<=>(const Message&) const = default;
};

// What the action has to wait for, and what it gives.
std::optional<Message> received_by(const Schedule& schedule, const Action& action);
std::optional<Message> sent_by(const Schedule& schedule, const Action& action);

struct ScheduleSizes {
  int64_t num_ranks = 1;
  int64_t stages_per_rank = 1;  // virtual stages; above 1 for Interleaved, GPipe and ZeroBubble
  int64_t num_micro_batches = 1;
};

// Any sizes from 1 on, also fewer micro-batches than ranks or no multiple of them.
//  - GPipe (Huang et al., 2019): all forwards, then all backwards.
//  - OneFOneB (Narayanan et al., 2019, "PipeDream-Flush"): a rank holds at most num_ranks - rank
//  micro-batches.
//  - Interleaved (Narayanan et al., 2021): several stages a rank, for a bubble shorter by their number. It is
//    written for multiples of num_ranks; for another number the actions of the micro-batches that there are
//    not are left out.
//  - ZeroBubble (Qi et al., 2024, "ZB-H1"): the order of 1F1B, or with several stages a rank of Interleaved,
//    with every backward split in two: weight gradients fill the bubble, at the memory of 1F1B's first rank.
// Throws Error(Config, "SCHEDULE") for a size below 1 and for OneFOneB with several stages a rank.
Schedule make_schedule(PipelineKind kind, const ScheduleSizes& sizes);

// The forwards alone, for evaluation.
Schedule make_forward_schedule(const ScheduleSizes& sizes);

}  // namespace tessera::parallel
