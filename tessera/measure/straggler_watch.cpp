#include "tessera/measure/straggler_watch.h"

#include <algorithm>
#include <array>

#include "tessera/core/median.h"

namespace tessera::measure {
namespace {

// Smaller differences are lost in what an operating system does beside.
constexpr double kLeastSeconds = 0.002;

double layer_seconds(const RankTimes& times) {
  return times.sections[static_cast<size_t>(StepSection::Layers)] / times.layers;
}

// Returns the rank as a straggler where `own_s` is at least `factor` times the median of the others and
// `least_s` above it.
std::optional<Straggler> slower(size_t rank, double own_s, const std::vector<double>& others, double factor,
                                double least_s) {
  if (others.empty()) return std::nullopt;
  Straggler found;
  found.rank = static_cast<int64_t>(rank);
  found.seconds = own_s;
  found.others_s = median(others);
  if (own_s < factor * found.others_s || own_s - found.others_s < least_s) return std::nullopt;
  found.slowdown = own_s / std::max(found.others_s, 1e-6);
  return found;
}

}  // namespace

std::optional<Straggler> StragglerWatch::by_step(size_t rank, const std::vector<RankTimes>& times) const {
  std::vector<double> others;
  std::array<std::vector<double>, kNumStepSections> others_by_section;
  for (size_t other = 0; other < times.size(); ++other) {
    if (other == rank || work_[other] != work_[rank]) continue;
    others.push_back(busy_seconds(times[other].sections));
    for (size_t s = 0; s < kNumStepSections; ++s) others_by_section[s].push_back(times[other].sections[s]);
  }
  const StepTimes& own = times[rank].sections;
  std::optional<Straggler> found = slower(rank, busy_seconds(own), others, kFactor, kLeastSeconds);
  double most = 0.0;
  for (size_t s = 0; found && s < kNumStepSections; ++s) {
    const double more = own[s] - median(others_by_section[s]);
    if (s == static_cast<size_t>(StepSection::Wait) || more <= most) continue;
    most = more;
    found->section = static_cast<StepSection>(s);
  }
  return found;
}

std::optional<Straggler> StragglerWatch::by_layer(size_t rank, const std::vector<RankTimes>& times) const {
  if (times[rank].layers <= 0.0) return std::nullopt;
  std::vector<double> others;
  bool has_other_work = false;
  for (size_t other = 0; other < times.size(); ++other) {
    has_other_work = has_other_work || work_[other] != work_[rank];
    if (other != rank && times[other].layers > 0.0) others.push_back(layer_seconds(times[other]));
  }
  if (!has_other_work) return std::nullopt;
  std::optional<Straggler> found =
      slower(rank, layer_seconds(times[rank]), others, kLayerFactor, kLeastSeconds / times[rank].layers);
  if (found) {
    found->is_of_layer = true;
    found->section = StepSection::Layers;
  }
  return found;
}

std::optional<Straggler> StragglerWatch::slowest_of(const std::vector<RankTimes>& times) const {
  std::optional<Straggler> slowest;
  for (size_t rank = 0; rank < times.size(); ++rank) {
    std::optional<Straggler> found = by_step(rank, times);
    if (!found) found = by_layer(rank, times);
    if (found && (!slowest || found->slowdown > slowest->slowdown)) slowest = found;
  }
  return slowest;
}

std::optional<Straggler> StragglerWatch::judge(const std::vector<RankTimes>& times, double seconds) {
  const std::optional<Straggler> slowest = slowest_of(times);
  const int64_t suspect = slowest ? slowest->rank : -1;
  // The first windows are short, and full of what happens only once: they do not count.
  const bool is_full = seconds >= 0.5 * kWindowSeconds;
  windows_ = is_full && suspect == suspect_ ? windows_ + 1 : 1;
  suspect_ = suspect;
  const double fitting = static_cast<double>(num_steps_) * kWindowSeconds / std::max(seconds, 1e-6);
  num_steps_ = std::clamp(static_cast<int64_t>(fitting), kLeastSteps, 10 * num_steps_);
  return windows_ >= kWindows ? slowest : std::nullopt;
}

}  // namespace tessera::measure
