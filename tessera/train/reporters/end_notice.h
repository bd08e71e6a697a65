// The last words of a run that a signal ends: Ctrl-C, or the launcher that ends its ranks.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

// While it lives, SIGINT, SIGTERM and SIGHUP (unless they are ignored) say one line, remove the lock, and
// then end the process as they would have. One at a time.
class EndNotice {
 public:
  explicit EndNotice(const std::string& lock_path);
  ~EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

  // The line from now on, without "tessera: "; cut at 1 KiB.
  void set(const std::string& text);
};

// Keeps the notice at the last step.
class LastStep : public Reporter {
 public:
  // `rest`: what follows "interrupted after step 12". The notice outlives this.
  LastStep(EndNotice& notice, std::function<std::string()> rest) : notice_(notice), rest_(std::move(rest)) {}

  void on_step(const TrainState& state, StepMetrics&) override {
    notice_.set("interrupted after step " + std::to_string(state.step) + rest_());
  }

 private:
  EndNotice& notice_;
  std::function<std::string()> rest_;
};

}  // namespace tessera::train
