// Which rank holds the others up, step after step.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/core/step_clock.h"

namespace tessera::train {

// Of a rank, the mean of its steps.
struct RankTimes {
  StepTimes sections = {};
  double layers = 0.0;  // that it ran forward
};

struct Straggler {
  int64_t rank = 0;
  bool is_of_layer = false;                  // else of a step
  double seconds = 0.0, others_s = 0.0;      // without waiting: its own, and the others' median
  double slowdown = 1.0;                     // the one over the other
  StepSection section = StepSection::Other;  // where most of the difference goes
};

// Ranks with the same work are compared with each other, by the time in which they do not wait. One that
// takes kFactor times as long as the median of the others is a straggler when it has been that in kWindows
// windows in a row: what comes and goes on a machine that others use too is none. Ranks of other work, which
// hold other stages of a pipeline, are compared by what all stages have: the forward of a layer. As layers
// may differ, it takes kLayerFactor there.
class StragglerWatch {
 public:
  static constexpr int64_t kWindows = 3, kLeastSteps = 5;
  static constexpr double kFactor = 1.5, kLayerFactor = 2.0, kWindowSeconds = 4.0;

  // `work`: of each rank, equal where the work is.
  explicit StragglerWatch(std::vector<int64_t> work) : work_(std::move(work)) {}

  // Of the window that goes on, so that it takes about kWindowSeconds.
  int64_t num_steps() const { return num_steps_; }
  // The end of a window, which took `seconds`; `times`: of each rank. The straggler that there is now, if
  // any.
  std::optional<Straggler> judge(const std::vector<RankTimes>& times, double seconds);

 private:
  // What makes this rank one, if anything does.
  std::optional<Straggler> by_step(size_t rank, const std::vector<RankTimes>& times) const;
  std::optional<Straggler> by_layer(size_t rank, const std::vector<RankTimes>& times) const;
  std::optional<Straggler> slowest_of(const std::vector<RankTimes>& times) const;

  const std::vector<int64_t> work_;
  int64_t num_steps_ = kLeastSteps;
  int64_t suspect_ = -1, windows_ = 0;  // in a row
};

}  // namespace tessera::train
