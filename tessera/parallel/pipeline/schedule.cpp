#include "tessera/parallel/pipeline/schedule.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/round_up.h"

namespace tessera::parallel {
namespace {

// The difference between the kinds: how many forwards a rank runs before it alternates forwards and
// backwards, and whether backwards are split.
struct Order {
  int64_t warmup = 0;
  bool is_split = false;
  int64_t weight_delay = 0;  // number of later input gradients that come before a weight gradient
};

Order order_of(PipelineKind kind, const ScheduleSizes& sizes, int64_t rank) {
  const int64_t later = sizes.num_ranks - 1 - rank;
  // In 1F1B a micro-batch comes back after it has passed all later ranks. With several stages a rank, the
  // first num_ranks micro-batches pass all of the rank's stages before the first of them comes back.
  const int64_t warmup =
      sizes.stages_per_rank == 1 ? later : 2 * later + (sizes.stages_per_rank - 1) * sizes.num_ranks;
  switch (kind) {
    case PipelineKind::GPipe: return {sizes.stages_per_rank * sizes.num_micro_batches};
    case PipelineKind::OneFOneB:
    case PipelineKind::Interleaved: return {warmup};
    case PipelineKind::ZeroBubble: return {warmup, true, rank};
  }
  return {};
}

// Returns action number `index` of this kind on the rank. A rank's stages take micro-batches in groups of
// num_ranks, and each group goes through all of its stages (backwards in the opposite order); with one stage
// a rank all micro-batches are one group.
Action turn(const ScheduleSizes& sizes, int64_t rank, int64_t index, ActionKind kind) {
  const int64_t group_size = sizes.stages_per_rank == 1 ? sizes.num_micro_batches : sizes.num_ranks;
  const int64_t round = group_size * sizes.stages_per_rank;
  int64_t local = index % round / group_size;
  if (kind != ActionKind::Forward) local = sizes.stages_per_rank - 1 - local;
  return {kind, local * sizes.num_ranks + rank, index / round * group_size + index % group_size};
}

std::vector<Action> actions_of(const ScheduleSizes& sizes, int64_t rank, const Order& order) {
  const int64_t total = sizes.stages_per_rank * sizes.num_micro_batches;
  std::vector<Action> actions;
  int64_t forwards = 0, backwards = 0, weights = 0;
  const auto forward = [&] { actions.push_back(turn(sizes, rank, forwards++, ActionKind::Forward)); };
  const auto weight = [&] { actions.push_back(turn(sizes, rank, weights++, ActionKind::WeightGradient)); };
  while (forwards < std::min(order.warmup, total)) forward();
  while (backwards < total) {
    if (forwards < total) forward();
    const ActionKind kind = order.is_split ? ActionKind::InputGradient : ActionKind::Backward;
    actions.push_back(turn(sizes, rank, backwards++, kind));
    if (order.is_split && backwards - weights > order.weight_delay) weight();
  }
  while (order.is_split && weights < total) weight();
  return actions;
}

void check_sizes(const ScheduleSizes& sizes) {
  const auto check = [](const char* what, int64_t value) {
    if (value >= 1) return;
    throw Error(ErrorKind::Config, "SCHEDULE", "a pipeline schedule needs " + std::string(what))
        .got(std::to_string(value))
        .need("at least 1");
  };
  check("ranks", sizes.num_ranks);
  check("stages", sizes.stages_per_rank);
  check("micro-batches", sizes.num_micro_batches);
}

Schedule without_actions(const ScheduleSizes& sizes) {
  check_sizes(sizes);
  Schedule schedule;
  schedule.num_ranks = sizes.num_ranks;
  schedule.num_stages = sizes.num_ranks * sizes.stages_per_rank;
  schedule.num_micro_batches = sizes.num_micro_batches;
  return schedule;
}

}  // namespace

std::string describe(const Action& action) {
  constexpr const char* kNames[] = {"forward", "backward", "input gradient", "weight gradient"};
  return std::string(kNames[static_cast<int>(action.kind)]) + " of micro-batch " +
         std::to_string(action.micro_batch) + " in stage " + std::to_string(action.stage);
}

std::optional<Message> received_by(const Schedule& schedule, const Action& action) {
  const bool is_forward = action.kind == ActionKind::Forward;
  if (action.kind == ActionKind::WeightGradient) return std::nullopt;
  if (is_forward ? action.stage == 0 : action.stage + 1 == schedule.num_stages) return std::nullopt;
  return Message{!is_forward, action.stage, action.micro_batch};
}

std::optional<Message> sent_by(const Schedule& schedule, const Action& action) {
  const bool is_forward = action.kind == ActionKind::Forward;
  if (action.kind == ActionKind::WeightGradient) return std::nullopt;
  if (is_forward ? action.stage + 1 == schedule.num_stages : action.stage == 0) return std::nullopt;
  return Message{!is_forward, action.stage + (is_forward ? 1 : -1), action.micro_batch};
}

Schedule make_schedule(PipelineKind kind, const ScheduleSizes& sizes) {
  Schedule schedule = without_actions(sizes);
  if (kind == PipelineKind::OneFOneB && sizes.stages_per_rank > 1) {
    throw Error(ErrorKind::Config, "SCHEDULE", "1f1b has one stage per rank")
        .got(std::to_string(sizes.stages_per_rank))
        .hint("for several stages, use the schedule interleaved");
  }
  ScheduleSizes padded = sizes;
  if (sizes.stages_per_rank > 1) {
    padded.num_micro_batches = round_up(sizes.num_micro_batches, sizes.num_ranks);
  }
  for (int64_t rank = 0; rank < sizes.num_ranks; ++rank) {
    schedule.actions.push_back(actions_of(padded, rank, order_of(kind, padded, rank)));
    std::erase_if(schedule.actions.back(),
                  [&](const Action& action) { return action.micro_batch >= sizes.num_micro_batches; });
  }
  return schedule;
}

Schedule make_forward_schedule(const ScheduleSizes& sizes) {
  Schedule schedule = make_schedule(PipelineKind::GPipe, sizes);
  schedule.has_backward = false;
  for (auto& actions : schedule.actions) {
    std::erase_if(actions, [](const Action& action) { return action.kind != ActionKind::Forward; });
  }
  return schedule;
}

}  // namespace tessera::parallel
