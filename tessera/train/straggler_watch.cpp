#include "tessera/train/straggler_watch.h"

#include <algorithm>
#include <array>

#include "tessera/core/median.h"

namespace tessera::train {
namespace {

// Shorter ones are lost in what an operating system does beside.
constexpr double kLeastSeconds = 0.002;

}  // namespace

std::optional<Straggler> StragglerWatch::slowest_of(const std::vector<StepTimes>& times) const {
  std::optional<Straggler> slowest;
  for (size_t rank = 0; rank < times.size(); ++rank) {
    std::vector<double> others;
    std::array<std::vector<double>, kNumStepSections> others_by_section;
    for (size_t other = 0; other < times.size(); ++other) {
      if (other == rank || work_[other] != work_[rank]) continue;
      others.push_back(busy_seconds(times[other]));
      for (size_t s = 0; s < kNumStepSections; ++s) others_by_section[s].push_back(times[other][s]);
    }
    if (others.empty()) continue;
    Straggler found;
    found.rank = static_cast<int64_t>(rank);
    found.seconds = busy_seconds(times[rank]);
    found.others_s = median(others);
    if (found.seconds < kFactor * found.others_s || found.seconds - found.others_s < kLeastSeconds) continue;
    found.slowdown = found.seconds / std::max(found.others_s, 1e-6);
    if (slowest && slowest->slowdown >= found.slowdown) continue;
    double most = 0.0;
    for (size_t s = 0; s < kNumStepSections; ++s) {
      const double more = times[rank][s] - median(others_by_section[s]);
      if (s == static_cast<size_t>(StepSection::Wait) || more <= most) continue;
      most = more;
      found.section = static_cast<StepSection>(s);
    }
    slowest = found;
  }
  return slowest;
}

std::optional<Straggler> StragglerWatch::judge(const std::vector<StepTimes>& times, double seconds) {
  const std::optional<Straggler> slowest = slowest_of(times);
  const int64_t suspect = slowest ? slowest->rank : -1;
  // The first windows are short, and full of what happens once.
  const bool is_full = seconds >= 0.5 * kWindowSeconds;
  windows_ = is_full && suspect == suspect_ ? windows_ + 1 : 1;
  suspect_ = suspect;
  const double fitting = static_cast<double>(num_steps_) * kWindowSeconds / std::max(seconds, 1e-6);
  num_steps_ = std::clamp(static_cast<int64_t>(fitting), kLeastSteps, 10 * num_steps_);
  return windows_ >= kWindows ? slowest : std::nullopt;
}

}  // namespace tessera::train
