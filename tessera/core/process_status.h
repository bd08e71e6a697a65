// Another process of this machine, as the system shows it.
#pragma once

namespace tessera {

struct ProcessStatus {
  char state = 0;  // 'R' runs, 'S' sleeps, 'T' is stopped, 'Z' has ended; 0 where it is gone, or not shown
  int parent = 0;

  bool is_stopped() const { return state == 'T' || state == 't'; }
  bool is_gone() const { return state == 0 || state == 'Z' || state == 'X'; }
};
// Reads the status of the process with this id from /proc.
ProcessStatus process_status(int id);

}  // namespace tessera
