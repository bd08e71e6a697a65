// The charts that show what runs measured.
#pragma once

#include <vector>

#include "tessera/report/line_chart.h"
#include "tessera/report/run_record.h"

namespace tessera::report {

// Makes charts with a line for each run, those first that matter most: loss, loss of each dataset, learning
// rate, gradient norm, speed, memory, time of a step by section, and every other number. Charts without a
// point are left out.
std::vector<Chart> charts_of(const std::vector<RunRecord>& runs);

}  // namespace tessera::report
