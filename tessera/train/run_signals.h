// What a run is asked for from outside, by signals.
#pragma once

#include <string>

namespace tessera::train {

// The exit code of a run that was asked to stop and has lost nothing: started again, it goes on.
inline constexpr int kStoppedExitCode = 75;
// Told in place of an exit code by a process that was ended because another one of its job has failed.
inline constexpr int kEndedByOthers = -2;

// [Note: signals of a run] SIGINT, SIGTERM and SIGHUP ask a run to stop, SIGUSR1 to save and go on; one that
// was ignored when the program started (nohup) stays ignored. At first a request to stop ends the process at
// once, as there is nothing to save. From defer_stops() on it waits until the run takes it, between two
// steps; a second one ends the process at once. An end at once says one line, removes the lock, and changes
// no file.
//
// One request may come by two ways: a batch system signals every process of a job, so a rank hears of it by
// itself and from the process that started it, which passes on how many requests it has had. The larger one
// of the two counts is how many there were.

// While it lives, these signals are its own. One at a time in a process.
class RunSignals {
 public:
  // `tell_end` is called in a signal handler with the exit code of an end at once. A signal of the process
  // `ender` (0: none) that it has not passed on is no request: it ends this process at once, since another
  // one of the job has failed, and it tells kEndedByOthers.
  explicit RunSignals(void (*tell_end)(int exit_code) = nullptr, int ender = 0);
  ~RunSignals();
  RunSignals(const RunSignals&) = delete;
  RunSignals& operator=(const RunSignals&) = delete;

  // For the process that speaks: what an end at once says from now on, without "tessera: ", cut at 1 KiB; and
  // the file that it removes. Both may be empty.
  void set_notice(const std::string& text);
  void set_lock(const std::string& path);
  // While one lives, a first request that would end this process at once does so at the object's end: for a
  // lock that is laid and then told to set_lock().
  class Held {
   public:
    Held();
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };
  // An end at once by a first request loses nothing: its exit code is kStoppedExitCode. Otherwise, and by a
  // second request, the process ends by the signal.
  void set_loses_nothing();
  // The run has saved what it has, and ends: no request loses anything any more. Or the result is in place: a
  // first request to stop comes too late and is let be. Both hold after this object's end, too, in a program
  // that gave `tell_end`, and so ends with its run.
  void set_saved();
  void set_done();
  // From now on a first request to stop waits to be taken.
  void defer_stops();

  // The signal that asks to stop; 0 for none.
  int stop_signal() const;
  // Whether SIGUSR1 came since the last call.
  bool take_save();
};

// The signal by which one process passes `signal` on to another, being its `count`-th request.
void pass_on_signal(int process, int signal, int count);

}  // namespace tessera::train
