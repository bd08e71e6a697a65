// What a run is asked for from outside, as all its ranks agree on it.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/run_signals.h"

namespace tessera::train {

// A later one includes the earlier ones: a run that stops saves first.
enum class Request { None, Save, Stop };

// Thrown out of an evaluation that a request to stop ends, on all ranks at once.
struct EvaluationStopped {};

// Signals reach ranks at different moments, and some ranks only; what any of them was asked for is done by
// all of them between the same two steps. The first rank also looks for the trigger file, which asks to save
// and is removed when it is seen.
class AgreedRequests : public Reporter {
 public:
  // What is given by reference outlives this.
  AgreedRequests(RunSignals& signals, comm::Communicator& world, std::string trigger_file)
      : signals_(signals), world_(world), trigger_file_(std::move(trigger_file)) {}

  // Begins to ask; finish() tells what any rank was asked for before. In between a step hides the exchange.
  // Both are collective. Where finish() tells to save, what a rank was asked for since begin() is answered by
  // the same checkpoint: a signal to every process of a job reaches them at different moments.
  void begin();
  Request finish();
  // Collective. Throws EvaluationStopped.
  void on_evaluating(int64_t done, int64_t total) override;

  // The signal that asked to stop, once finish() has told so.
  int stop_signal() const { return stop_signal_; }

 private:
  // Whether this rank is asked to save; takes the request away.
  bool take_save();

  RunSignals& signals_;
  comm::Communicator& world_;
  const std::string trigger_file_;
  int64_t own_ = 0;
  at::Tensor asked_;  // of all ranks, where there are several
  std::shared_ptr<comm::Work> exchange_;
  bool is_save_due_ = false;  // asked for during an evaluation
  int stop_signal_ = 0;
};

}  // namespace tessera::train
