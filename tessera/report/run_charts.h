// The charts that show what runs measured.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/line_chart.h"
#include "tessera/report/run_record.h"

namespace tessera::report {

// Makes charts with a line for each run, those first that matter most: loss, loss of each dataset, learning
// rate, gradient norm, speed, memory, time of a step by section, and every other number. Charts without a
// point are left out.
// The dashboard's script makes the same charts (report/dashboard_script.h).
std::vector<Chart> charts_of(const std::vector<RunRecord>& runs);

// Writes what the dashboard's script has to know of the charts of single numbers, as JSON: {"plots": [[title,
// number, axis, unit, whether it is noisy, whether it is logarithmic]], "elsewhere": [number]}.
std::string plots_text();

}  // namespace tessera::report
