// Takes what a run is asked for from outside, by signals.
#pragma once

#include <string>

namespace tessera::train {

// The exit code of a run that was asked to stop and has lost nothing: started again, it goes on.
inline constexpr int kStoppedExitCode = 75;
// Told instead of an exit code by a process that was ended because another one of its job has failed.
inline constexpr int kEndedByOthers = -2;

// [Note: signals of a run] SIGINT, SIGTERM and SIGHUP ask a run to stop; SIGUSR1 asks it to save and go on. A
// signal that was ignored when the program started (nohup) stays ignored. At first a request to stop ends the
// process at once, as there is nothing to save. From defer_stops() on it waits until the run takes it,
// between two steps; a second request ends the process at once. An end at once says one line, removes the
// lock, and changes no other file.
//
// One request may come in two ways: a batch system signals every process of a job, so a rank hears of it by
// itself and also from the process that started it, which passes on how many requests it has had. The larger
// of the two counts is the number of requests.

// Handles these signals while it lives. A process has one such object at a time.
class RunSignals {
 public:
  // `tell_end` is called in a signal handler with the exit code of an end at once. A signal that the process
  // `ender` (0: none) sends, rather than passes on, is no request: it ends this process at once, since
  // another one of the job has failed, and tell_end gets kEndedByOthers.
  explicit RunSignals(void (*tell_end)(int exit_code) = nullptr, int ender = 0);
  ~RunSignals();
  RunSignals(const RunSignals&) = delete;
  RunSignals& operator=(const RunSignals&) = delete;

  // Only the process that speaks for the job calls these. set_notice() sets what an end at once says from now
  // on, without "tessera: ", cut at 1 KiB; set_lock() sets the file that it removes. Both may be empty.
  void set_notice(const std::string& text);
  void set_lock(const std::string& path);
  // While one lives, a first request that would end this process at once does so only at the object's end:
  // for a lock that is laid and then told to set_lock().
  class Held {
   public:
    Held();
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };
  // Says that from now on an end at once by a first request loses nothing: its exit code is
  // kStoppedExitCode. Without this call, and by a second request, the process ends by the signal.
  void set_loses_nothing();
  // set_saved(): the run has saved what it has, and ends, so no request loses anything any more. set_done():
  // the result is in place, so a first request to stop comes too late and is ignored. Both hold after this
  // object's end, too, in a program that gave `tell_end`, and so ends with its run.
  void set_saved();
  void set_done();
  // Makes a first request to stop wait until the run takes it.
  void defer_stops();

  // Returns the signal that asks to stop; 0 for none.
  int stop_signal() const;
  // Tells whether SIGUSR1 came since the last call.
  bool take_save();
};

// Passes `signal` on to another process, as the `count`-th request of this one.
void pass_on_signal(int process, int signal, int count);

}  // namespace tessera::train
