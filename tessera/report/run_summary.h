// Runs in a table.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/run_record.h"

namespace tessera::report {

using Table = std::vector<std::vector<std::string>>;  // the first row is the heading

// A row for each run: steps, epochs, tokens, time, loss, evaluation, speed, memory. Columns that no run has
// are left out.
Table summary(const std::vector<RunRecord>& runs);

// A row for each top-level key of the recipes whose text is not the same in all, one column for a run. Only
// the heading where there is none. Runs without a recipe are left out.
Table recipe_differences(const std::vector<RunRecord>& runs);

}  // namespace tessera::report
