// From the keys a user wrote to native keys only.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Returns a map of native keys (datasets' entries too) made from `root`, by the tables of
// foreign_keys.h. Blank values are dropped. Keys without effect are named in one warning for each file. A
// value from the command line replaces what the file says; two keys of files that mean one native key must
// agree. `folder` is where a relative `deepspeed:` path is looked for when the current folder has none.
// Problems: E-CONFIG-UNKNOWN-KEY (with "did you mean", or the section a key belongs to), -UNSUPPORTED,
// -CONFLICT (both keys named), -TYPE and what reading a DeepSpeed file throws.
Node translate(const Node& root, const std::string& folder, Problems& problems);

// Every key path a recipe may hold: native ones first, entries of lists as "datasets.0.path".
std::vector<std::string> all_key_paths();

}  // namespace tessera::config
