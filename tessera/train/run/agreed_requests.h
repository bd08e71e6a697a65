// Requests to a run from outside, on which all of its ranks agree.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::train {

// A later value includes the earlier ones: a run that stops saves first.
enum class Request { None, Save, Stop };

// Thrown out of an evaluation that a request to stop ends, on all ranks at once.
struct EvaluationStopped {};

// Lets all ranks do what any of them was asked for, between the same two steps: signals reach ranks at
// different moments, and some ranks only. The first rank also looks for the trigger file, which asks to save
// and is removed when it is seen.
class AgreedRequests : public Reporter {
 public:
  // `signals` and `world` outlive this object.
  AgreedRequests(RunSignals& signals, comm::Communicator& world, std::string trigger_file)
      : signals_(signals), world_(world), trigger_file_(std::move(trigger_file)) {}

  // begin() starts to exchange what each rank was asked for before; finish() returns what any rank was asked
  // for. A step between the two hides the exchange. Both are collective. Where finish() returns Save, a
  // request to save that has come to this rank since begin() is answered by the same checkpoint, too: a
  // signal to every process of a job reaches them at different moments.
  void begin();
  Request finish();
  // Does both during an evaluation; the next finish() returns a request to save that was met here.
  // Collective. Throws EvaluationStopped on a request to stop.
  void on_evaluating(int64_t done, int64_t total) override;

  // Returns the signal that asked to stop, once finish() has returned Stop.
  int stop_signal() const { return stop_signal_; }

 private:
  // Tells whether this rank is asked to save, and takes the request away.
  bool take_save();

  RunSignals& signals_;
  comm::Communicator& world_;
  const std::string trigger_file_;
  int64_t own_ = 0;   // request of this rank, as kStop in the source says
  at::Tensor asked_;  // [1], int64: the largest request of all ranks, where there are several
  std::shared_ptr<comm::Work> exchange_;
  bool is_save_due_ = false;  // a save was asked for during an evaluation
  int stop_signal_ = 0;
};

}  // namespace tessera::train
