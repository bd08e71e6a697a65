// The page of `tessera report`, for other verbs that write it.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Writes the runs in these folders as one page. `named_by` is the option that names the file. Returns the
// exit code.
int write_report(const std::vector<std::string>& folders, const std::string& output,
                 const std::string& named_by, bool overwrites);

}  // namespace tessera::cli
