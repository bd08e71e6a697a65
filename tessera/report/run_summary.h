// Tables that compare runs.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/run_record.h"

namespace tessera::report {

using Table = std::vector<std::vector<std::string>>;  // the first row is the heading

// Makes a table with a row for each run: steps, epochs, tokens, time, loss, evaluation, speed, memory.
// Columns that no run has are left out.
Table summary(const std::vector<RunRecord>& runs);

// Makes a table with a row for each top-level key of the recipes whose text is not the same in all, and a
// column for each run; only the heading if there is no such key. Runs that have no recipe are left out.
Table recipe_differences(const std::vector<RunRecord>& runs);

}  // namespace tessera::report
