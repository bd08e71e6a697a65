// Patterns of file names, as `data_files` and the cards of datasets have them.
#pragma once

#include <string>

namespace tessera::io {

// Returns whether the name of a file below a folder ("data/a.jsonl") fits `pattern`: *, ? and [a-z] stay in a
// folder, ** crosses folders, and "a/**/b" fits "a/b" too.
bool fits_pattern(const std::string& name, const std::string& pattern);

}  // namespace tessera::io
