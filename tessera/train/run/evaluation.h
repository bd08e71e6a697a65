// Evaluates as often as the recipe says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/data/loader.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/run/samples.h"
#include "tessera/train/run/task_evaluation.h"
#include "tessera/train/step/best_evaluation.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

// The parts of an evaluation: the loss over rows, the scores of tasks, or both, and texts that go with the
// loss.
struct EvaluationParts {
  std::optional<data::Loader> loader;
  std::unique_ptr<TaskEvaluation> tasks = nullptr;  // null for none
  std::optional<Samples> samples = std::nullopt;

  bool is_any() const { return loader.has_value() || tasks != nullptr; }
};

class Evaluation {
 public:
  using Tell = std::function<void(const std::function<void(Reporter&)>&)>;

  // `tell` calls a function with each reporter of this rank. `goes_on`, which is called as an evaluation
  // goes, may end it by returning false, on all ranks alike. `training` and `mesh` outlive this object.
  // Throws what deciding_metric() throws for the datasets and tasks of `parts`, so that a wrong
  // metric_for_best_model shows before the first step.
  Evaluation(Training& training, const parallel::DeviceMesh& mesh, EvaluationParts parts, Tell tell,
             std::function<bool()> goes_on);

  // Evaluates if the recipe says so after this step. Returns false where `goes_on` ended that. Collective.
  // Throws Error(Numerics) where the loss is not finite, and what TaskEvaluation::evaluate() and
  // Samples::make() throw.
  bool after_step();
  // Returns the metric that decides which evaluation is the best, with a value that says nothing.
  const DecidingMetric& deciding() const { return deciding_; }

 private:
  // Measures all parts; returns nothing where `goes_on` ended that.
  std::optional<Evaluated> measure();
  // Tells the reporters how far the evaluation is, and returns whether it goes on.
  bool tell_progress(int64_t done, int64_t total) const;
  void tell_early_stop() const;

  Training& training_;
  const parallel::DeviceMesh& mesh_;
  EvaluationParts parts_;
  Tell tell_;
  std::function<bool()> goes_on_;
  DecidingMetric deciding_;
};

}  // namespace tessera::train
