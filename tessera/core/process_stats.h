// Time and memory of this process, and the state of others.
#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

// Seconds since construction or the last restart(), on a steady clock.
class Timer {
 public:
  double seconds() const;
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Peak resident set of this process in bytes, since start or the last reset.
int64_t peak_rss_bytes();
// Current resident set in bytes.
int64_t current_rss_bytes();
// Memory of the machine in bytes (MemTotal).
int64_t total_memory_bytes();
// usable_memory_bytes() is what this process and others of its control group may have of it, and
// available_memory_bytes() what is still free of that without swapping (MemAvailable).
int64_t usable_memory_bytes();
int64_t available_memory_bytes();
// Gives how many threads of the whole machine, without this one, ran or waited for a core during the next 20
// milliseconds, on average; 0 if the system does not tell.
double running_threads_of_others();
// Cores this process may run on.
int64_t usable_cores();

// Another process of this machine, as the system shows it.
struct ProcessStatus {
  char state = 0;  // 'R' runs, 'S' sleeps, 'T' is stopped, 'Z' has ended; 0 where it is gone, or not shown
  int parent = 0;

  bool is_stopped() const { return state == 'T' || state == 't'; }
  bool is_gone() const { return state == 0 || state == 'Z' || state == 'X'; }
};
// Reads the status of the process with this id from /proc.
ProcessStatus process_status(int id);

}  // namespace tessera
