// The page that shows runs.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/run_record.h"

namespace tessera::report {

// The first bytes of every page made here.
inline constexpr const char* kPageBegin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<!-- made by tessera report -->\n";

// Makes one HTML page that needs nothing else: a table of the runs, charts of all that they measured with a
// line for each run (loss, loss of each dataset, learning rate, gradient norm, speed, memory, time of a step
// by section, and every other number), their recipes, and where these differ. The reader chooses axes and
// smoothing of the charts if the browser runs scripts. `runs` must hold at least one.
std::string page(const std::vector<RunRecord>& runs);

}  // namespace tessera::report
