// How much the log tells.
#pragma once

#include <string>

namespace tessera::log {

enum class Detail {
  Few,    // warnings, errors and what ends the process
  Usual,  // news and progress too
  All,    // the time of each line, and progress without gaps
};

// Sets the detail of this process's log; Usual at its start.
void set_detail(Detail detail);
Detail detail();
// Returns "2026-11-26 11:35:02 ", by the clock and the zone of the machine, with Detail::All; else "".
std::string time_stamp();

}  // namespace tessera::log
