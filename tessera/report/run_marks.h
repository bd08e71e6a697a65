// Single steps of a run that deserve a look.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/report/run_record.h"

namespace tessera::report {

struct Mark {
  int64_t step = 0;
  bool is_warning = false;  // else a checkpoint
  std::string text;
};

// Gives the checkpoints of a run, and its warnings: losses that are not finite, steps without an update, and
// the first line in which a rank slows the others down. In ascending order of the step, at most 1000
// warnings. The script of the dashboard has the same warnings (report/dashboard_script.h).
std::vector<Mark> marks_of(const RunRecord& run);

// Writes the marks as JSON that the pages' script reads: [{"step": 3, "kind": "warning", "text": "..."}].
std::string marks_text(const RunRecord& run);

}  // namespace tessera::report
