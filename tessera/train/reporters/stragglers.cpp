#include "tessera/train/reporters/stragglers.h"

#include <cstdio>
#include <utility>

#include <ATen/ATen.h>
#include <unistd.h>

#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"

namespace tessera::train {
namespace {

// A rank sends the seconds of its sections, the number of its layers, and the seconds of the window.
constexpr int64_t kNumExchanged = static_cast<int64_t>(kNumStepSections) + 2;

std::vector<std::string> names_of_ranks(comm::Communicator& world) {
  std::vector<std::string> names =
      world.all_gather_string("(process " + std::to_string(getpid()) + " on " + host_name() + ")");
  for (size_t rank = 0; rank < names.size(); ++rank)
    names[rank] = "rank " + std::to_string(rank) + " " + names[rank];
  return names;
}

// Returns the stage of each rank in a pipeline: ranks of one stage have the same work. Collective.
std::vector<int64_t> stages(const parallel::DeviceMesh& mesh) {
  std::vector<int64_t> stages;
  for (const std::string& stage :
       mesh.world()->all_gather_string(std::to_string(mesh.coordinate(parallel::kAxisPp)))) {
    stages.push_back(std::stoll(stage));
  }
  return stages;
}

}  // namespace

Stragglers::Stragglers(const parallel::DeviceMesh& mesh)
    : world_(*mesh.world()), ranks_(names_of_ranks(world_)), watch_(stages(mesh)) {}

void Stragglers::on_step(const TrainState&, StepMetrics& metrics) {
  if (world_.size() == 1) return;
  if (exchange_ != nullptr) finish_exchange();
  for (size_t s = 0; s < kNumStepSections; ++s) times_[s] += metrics.own_times[s];
  layers_ += static_cast<double>(metrics.own_layers);
  window_s_ += metrics.step_s;
  if (++num_steps_ == watch_.num_steps()) begin_exchange();
  metrics.straggler = straggler_;
}

void Stragglers::begin_exchange() {
  own_ = at::empty({kNumExchanged}, on_host(at::kDouble));
  const auto values = host_span<double>(own_);
  for (size_t s = 0; s < kNumStepSections; ++s)
    values[s] = std::exchange(times_[s], 0.0) / static_cast<double>(num_steps_);
  values[kNumStepSections] = std::exchange(layers_, 0.0) / static_cast<double>(num_steps_);
  values[kNumStepSections + 1] = std::exchange(window_s_, 0.0);
  num_steps_ = 0;
  all_ = at::empty({world_.size(), kNumExchanged}, own_.options());
  comm::AllGatherOptions options;
  options.hint = "times of the ranks";
  exchange_ = world_.all_gather_single(all_, own_, /*async_op=*/true, options);
}

void Stragglers::finish_exchange() {
  std::exchange(exchange_, nullptr)->wait();
  const auto values = host_span<const double>(all_);
  std::vector<measure::RankTimes> times(static_cast<size_t>(world_.size()));
  for (size_t rank = 0; rank < times.size(); ++rank) {
    const auto of_rank = values.subspan(rank * static_cast<size_t>(kNumExchanged));
    for (size_t s = 0; s < kNumStepSections; ++s) times[rank].sections[s] = of_rank[s];
    times[rank].layers = of_rank[kNumStepSections];
  }
  // All ranks take the length of rank 0's window, so that their next windows have equally many steps.
  tell(watch_.judge(times, values[kNumStepSections + 1]));
}

void Stragglers::tell(const std::optional<measure::Straggler>& now) {
  const int64_t before = straggler_ ? straggler_->rank : -1;
  straggler_ = now;
  if (before >= 0 && (!now || now->rank != before))
    log::info(ranks_[static_cast<size_t>(before)] + " keeps up with the other ranks again");
  if (!now || now->rank == before) return;
  char text[320];
  std::snprintf(text, sizeof text,
                " slows down the other ranks: %s takes %.3g s on it, %.1f times as long as on the others "
                "(%.3g s, without waiting), mostly in section '%s'. hint: check for other programs on its "
                "cores, a throttled processor, or swapping",
                now->is_of_layer ? "the forward of a layer" : "a step", now->seconds, now->slowdown,
                now->others_s, section_name(now->section));
  log::warn(ranks_[static_cast<size_t>(now->rank)] + text);
}

}  // namespace tessera::train
