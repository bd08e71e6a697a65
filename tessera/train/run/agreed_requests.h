// Requests to a run from outside, on which all of its ranks agree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/process_stats.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::train {

// A later value includes the earlier ones: a run that stops saves first. SaveByTime is due by the clock.
enum class Request { None, SaveByTime, Save, Stop };

// Lets all ranks do what any of them was asked for, between the same two steps: signals reach ranks at
// different moments, and some ranks only. The first rank also looks for the trigger file, which asks to save
// and is removed when it is seen.
class AgreedRequests {
 public:
  // `signals` and `world` outlive this object.
  AgreedRequests(RunSignals& signals, comm::Communicator& world, std::string trigger_file)
      : signals_(signals), world_(world), trigger_file_(std::move(trigger_file)) {}

  // Asks to save by itself, as SaveByTime, when no save was asked for in so many seconds, by the clock of the
  // first rank.
  void ask_every(double seconds) { period_s_ = seconds; }
  // Returns what any rank was asked for before this call. Runs `meanwhile`, if given, while the ranks
  // exchange the requests. After Save, a request to save that has reached this rank in between is answered by
  // the same checkpoint, because a signal to all processes of a job reaches them at different moments.
  // Collective.
  Request agree(const std::function<void()>& meanwhile = nullptr);
  // Returns whether an evaluation goes on: false where any rank is asked to stop. The next agree() returns a
  // request to save that was met here. Collective.
  bool lets_evaluation_go_on();

  // Returns the signal that asked to stop, once agree() has returned Stop, or an evaluation was ended.
  int stop_signal() const { return stop_signal_; }

 private:
  void begin();
  Request finish();
  // Tells whether this rank is asked to save, and takes the request away.
  bool take_save();

  RunSignals& signals_;
  comm::Communicator& world_;
  const std::string trigger_file_;
  int64_t own_ = 0;   // request of this rank, as kStop in the source says
  at::Tensor asked_;  // [1], int64: the largest request of all ranks, where there are several
  std::shared_ptr<comm::Work> exchange_;
  Request due_ = Request::None;  // a save that was asked for during an evaluation
  double period_s_ = 0.0;        // 0: no save is asked for by the clock
  Timer since_save_;
  int stop_signal_ = 0;
};

}  // namespace tessera::train
