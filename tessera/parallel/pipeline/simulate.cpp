#include "tessera/parallel/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::parallel {
namespace {

// Runs the actions of all ranks as far as they go, and fills `timeline`. Returns how many actions of each
// rank are done.
std::vector<size_t> run(const Schedule& schedule, const ActionCosts& costs, Timeline& timeline) {
  std::map<Message, int64_t> sent;  // the time at which each message was sent
  std::vector<size_t> done(schedule.actions.size(), 0);
  std::vector<int64_t> clocks(schedule.actions.size(), 0);
  timeline.slots.resize(schedule.actions.size());
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t rank = 0; rank < done.size(); ++rank) {
      // A rank goes on until it needs a message that was not sent yet; the ranks are visited again as long as
      // any of them moves.
      for (; done[rank] < schedule.actions[rank].size(); ++done[rank]) {
        const Action& action = schedule.actions[rank][done[rank]];
        int64_t begin = clocks[rank];
        if (const auto message = received_by(schedule, action)) {
          const auto found = sent.find(*message);
          if (found == sent.end()) break;
          begin = std::max(begin, found->second);
        }
        clocks[rank] = begin + costs.of(action.kind);
        if (const auto message = sent_by(schedule, action)) sent[*message] = clocks[rank];
        timeline.slots[rank].push_back({action, begin, clocks[rank]});
        moves = true;
      }
    }
  }
  return done;
}

// Finds the first fault in one rank's actions: each action of its stages must occur once, and behind the
// actions of this rank whose results it needs.
std::string find_fault_of_rank(const Schedule& schedule, int64_t rank) {
  // How often each kind was seen, by stage and micro-batch.
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> seen;
  const std::string on = " on rank " + std::to_string(rank);
  for (const Action& action : schedule.actions[rank]) {
    if (action.stage < 0 || action.stage >= schedule.num_stages || action.micro_batch < 0 ||
        action.micro_batch >= schedule.num_micro_batches || schedule.rank_of(action.stage) != rank) {
      return "the " + describe(action) + " does not belong" + on;
    }
    auto& counts = seen[{action.stage, action.micro_batch}];
    counts.resize(4);
    const auto count = [&](ActionKind kind) -> int64_t& { return counts[static_cast<size_t>(kind)]; };
    if (count(action.kind)++ > 0) return "the " + describe(action) + " comes twice" + on;
    const bool is_whole = action.kind == ActionKind::Backward;
    if (action.kind == ActionKind::Forward) continue;
    if (!schedule.has_backward) return "the " + describe(action) + " is no forward";
    if (count(ActionKind::Forward) == 0) return "the " + describe(action) + " comes before its forward" + on;
    if (action.kind == ActionKind::WeightGradient && count(ActionKind::InputGradient) == 0) {
      return "the " + describe(action) + " comes before its input gradient" + on;
    }
    if (is_whole ? count(ActionKind::InputGradient) > 0 : count(ActionKind::Backward) > 0) {
      return "the " + describe(action) + " is computed whole and in parts" + on;
    }
  }
  for (int64_t stage = rank; stage < schedule.num_stages; stage += schedule.num_ranks) {
    for (int64_t m = 0; m < schedule.num_micro_batches; ++m) {
      auto counts = seen[{stage, m}];
      counts.resize(4);
      const bool is_done = counts[1] == 1 || (counts[2] == 1 && counts[3] == 1) || !schedule.has_backward;
      if (counts[0] == 1 && is_done) continue;
      return "micro-batch " + std::to_string(m) + " does not pass stage " + std::to_string(stage) +
             (counts[0] == 1 ? " on its way back" : "");
    }
  }
  return "";
}

// Returns the micro-batches of the messages of each direction for each stage, in the order in which the
// sending (or receiving) rank meets them.
std::map<std::pair<bool, int64_t>, std::vector<int64_t>> message_orders(const Schedule& schedule,
                                                                        bool are_sent) {
  std::map<std::pair<bool, int64_t>, std::vector<int64_t>> orders;
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) {
      const auto message = are_sent ? sent_by(schedule, action) : received_by(schedule, action);
      if (message) orders[{message->is_gradient, message->stage}].push_back(message->micro_batch);
    }
  }
  return orders;
}

}  // namespace

int64_t ActionCosts::of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::Forward: return forward;
    case ActionKind::Backward: return input_gradient + weight_gradient;
    case ActionKind::InputGradient: return input_gradient;
    case ActionKind::WeightGradient: return weight_gradient;
  }
  return 0;
}

std::string find_fault(const Schedule& schedule) {
  if (static_cast<int64_t>(schedule.actions.size()) != schedule.num_ranks) return "a rank has no actions";
  for (int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    if (std::string fault = find_fault_of_rank(schedule, rank); !fault.empty()) return fault;
  }
  const auto sent = message_orders(schedule, true), received = message_orders(schedule, false);
  for (const auto& [key, order] : sent) {
    const auto found = received.find(key);
    if (found != received.end() && found->second == order) continue;
    return std::string(key.first ? "gradients" : "activations") + " for stage " + std::to_string(key.second) +
           " are sent in one order and received in another";
  }
  Timeline timeline;
  const std::vector<size_t> done = run(schedule, {}, timeline);
  for (size_t rank = 0; rank < done.size(); ++rank) {
    if (done[rank] == schedule.actions[rank].size()) continue;
    return "rank " + std::to_string(rank) + " waits for ever for the input of the " +
           describe(schedule.actions[rank][done[rank]]);
  }
  return "";
}

Timeline simulate(const Schedule& schedule, const ActionCosts& costs) {
  Timeline timeline;
  const std::vector<size_t> done = run(schedule, costs, timeline);
  int64_t busy = 0;
  for (size_t rank = 0; rank < done.size(); ++rank) {
    TESSERA_ASSERT(done[rank] == schedule.actions[rank].size(), "a schedule without fault");
    int64_t in_flight = 0, peak = 0;
    for (const Timeline::Slot& slot : timeline.slots[rank]) {
      busy += slot.end - slot.begin;
      timeline.length = std::max(timeline.length, slot.end);
      if (slot.action.kind == ActionKind::Forward) peak = std::max(peak, ++in_flight);
      const bool is_end =
          slot.action.kind == ActionKind::Backward || slot.action.kind == ActionKind::WeightGradient;
      if (is_end || !schedule.has_backward) --in_flight;
    }
    timeline.peak_in_flight.push_back(peak);
  }
  const int64_t all = timeline.length * schedule.num_ranks;
  timeline.bubble_share = all == 0 ? 0.0 : 1.0 - static_cast<double>(busy) / static_cast<double>(all);
  return timeline;
}

}  // namespace tessera::parallel
