// Tells beforehand how long a step will take and how much it will send, and compares the first steps with it.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "tessera/config/recipe.h"
#include "tessera/models/common/model_config.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/planner/step_time.h"
#include "tessera/planner/step_traffic.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

// The parts of a step that take time, for both the planner and the clock of a step.
enum class StepPart { Computing, Waiting, Updating, Data };
inline constexpr size_t kNumStepParts = 4;
using PartSeconds = std::array<double, kNumStepParts>;

// The time and traffic that the planner foresees for one step with full documents.
struct ForeseenStep {
  planner::StepTime time;
  planner::StepTraffic traffic;

  // Returns the parts of a step with `tokens` tokens of all ranks, `label_tokens` of which reach the loss.
  PartSeconds parts(double tokens, double label_tokens) const;
};

// Returns what the planner foresees for the recipe on the ranks of the mesh: on the cluster that its key
// `cluster` names, or else on this processor, of which every rank measures its share. `peak`: operations per
// second of a large product on all ranks together (Light). Returns nothing on ranks above 0, which do not
// tell it, and where the planner has no numbers: for float64, for GPUs and for several machines without that
// key, and for a cluster of another size.
// Collective. Throws what load_cluster() throws.
std::optional<ForeseenStep> foresee_step(const config::Recipe& recipe, const models::ModelConfig& config,
                                         const parallel::DeviceMesh& mesh, double peak);

// Returns the bytes that were sent along the axes of the mesh, by purpose; those of losses, norms and counts
// are left out.
planner::StepTraffic sent_by_purpose(const std::map<std::string, AxisTraffic>& by_axis);

class StepForecast : public Reporter {
 public:
  // Logs what is foreseen. `expected_bytes`: the memory that expect_memory() told.
  StepForecast(const ForeseenStep& foreseen, std::optional<int64_t> expected_bytes);

  // After the first steps, logs time, traffic and memory of this rank beside what was foreseen. Warns where
  // the steps take more than a quarter longer or shorter, with the part that differs most. Comes after the
  // reporters that measure. Not collective.
  void on_step(const TrainState& state, StepMetrics& metrics) override;

  // The steps that are compared: the first one of a run has more to do.
  static constexpr int64_t kFirst = 2, kLast = 5;

 private:
  void compare() const;
  void compare_traffic() const;

  const ForeseenStep foreseen_;
  const std::optional<int64_t> expected_bytes_;
  int64_t num_steps_ = 0;  // of this run
  // Sums over the steps that are compared, and the last peak of memory.
  PartSeconds seconds_{}, foreseen_seconds_{};
  double step_seconds_ = 0.0;
  planner::StepTraffic sent_;
  int64_t peak_bytes_ = 0;
};

}  // namespace tessera::train
