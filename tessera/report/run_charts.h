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
std::vector<Chart> charts_of(const std::vector<RunRecord>& runs);

// Writes the table of charts for the dashboard's script (report/dashboard_data_script.h), which makes the
// same ones, as JSON: {"rows": [[kind, title, number, axis, unit, whether it is noisy, whether it is
// logarithmic]], "elsewhere": [numbers that have no chart of their own]}.
std::string chart_rows_text();

}  // namespace tessera::report
