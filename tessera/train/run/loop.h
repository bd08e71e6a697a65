// Makes the steps of a run, and does what comes between two of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/run/agreed_requests.h"
#include "tessera/train/run/checkpoints.h"
#include "tessera/train/run/evaluation.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/run_output.h"
#include "tessera/train/run/run_signals.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

// Names the parts of a run that its loop works with. They outlive the loop.
struct LoopParts {
  Training& training;
  const parallel::DeviceMesh& mesh;
  RunSignals& signals;
  RunOutput& output;
  const RunInputs& inputs;
  // The run goes on from this one; null for a run from the beginning.
  const checkpoint::ShardedCheckpoint* checkpoint;
};

class TrainLoop {
 public:
  // `evaluated` is what evaluations measure, if anything. `measuring` are the reporters that measure.
  // Comes after RunOutput::begin(). Collective. Throws what Evaluation's constructor throws.
  TrainLoop(const LoopParts& parts, EvaluationParts evaluated,
            std::vector<std::unique_ptr<Reporter>> measuring);

  // Makes the steps. Returns whether the run came to its end; false where it was asked to stop, and is saved.
  // Collective. Throws what Training::step(), Evaluation, Checkpoints and the reporters throw.
  bool run();

 private:
  // Makes a step and what follows it. Returns false where the run stops, and is saved.
  bool next_step();
  void make_step();
  // Evaluates where that is due. Returns false where a request to stop ended it.
  bool evaluate() { return !evaluation_ || evaluation_->after_step(); }
  void save(Request request, bool stops);
  // Returns what saves checkpoints, and makes it at the first call.
  Checkpoints& saving();
  void roll_back();
  void take_best();
  void tell(const std::function<void(Reporter&)>& what) const;
  void tell_line(const std::optional<StepMetrics>& line) const;
  void tell_stop() const;

  const LoopParts parts_;
  Training& training_;
  const TrainState& state_;
  AgreedRequests requests_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
  std::optional<Evaluation> evaluation_;
  std::optional<Checkpoints> checkpoints_;
};

}  // namespace tessera::train
