// Finds a rank that holds the others up, step after step.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/core/step_clock.h"

namespace tessera::measure {

// Times of one rank, as means over the steps of a window.
struct RankTimes {
  StepTimes sections = {};
  double layers = 0.0;  // layers that it ran forward
};

struct Straggler {
  int64_t rank = 0;
  bool is_of_layer = false;                  // slow by the forward of a layer; else by a step
  double seconds = 0.0, others_s = 0.0;      // without waiting: its own time, and the median of the others'
  double slowdown = 1.0;                     // seconds / others_s
  StepSection section = StepSection::Other;  // where most of the difference goes
};

// Compares ranks with the same work by the time in which they do not wait. A rank that takes kFactor times as
// long as the median of the others is a straggler when it has been that in kWindows windows in a row: what
// comes and goes on a machine that others use too is none. Ranks with other work, which hold other stages of
// a pipeline, are compared by what all stages have: the forward of a layer. As layers may differ, the factor
// is kLayerFactor there.
class StragglerWatch {
 public:
  static constexpr int64_t kWindows = 3, kLeastSteps = 5;
  static constexpr double kFactor = 1.5, kLayerFactor = 2.0, kWindowSeconds = 4.0;

  // `work` has a number for each rank, equal where the work is.
  explicit StragglerWatch(std::vector<int64_t> work) : work_(std::move(work)) {}

  // Returns the number of steps of the current window, chosen so that it takes about kWindowSeconds.
  int64_t num_steps() const { return num_steps_; }
  // Ends a window, which took `seconds`; `times` are those of each rank. Returns the straggler that there is
  // now, if any.
  std::optional<Straggler> judge(const std::vector<RankTimes>& times, double seconds);

 private:
  // These return what makes a rank a straggler in this window, if anything does.
  std::optional<Straggler> by_step(size_t rank, const std::vector<RankTimes>& times) const;
  std::optional<Straggler> by_layer(size_t rank, const std::vector<RankTimes>& times) const;
  std::optional<Straggler> slowest_of(const std::vector<RankTimes>& times) const;

  const std::vector<int64_t> work_;
  int64_t num_steps_ = kLeastSteps;
  int64_t suspect_ = -1, windows_ = 0;  // the slowest rank, and for how many windows in a row
};

}  // namespace tessera::measure
