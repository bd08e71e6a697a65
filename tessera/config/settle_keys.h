// Resolves keys of a translated map that depend on one another, before they are bound.
#pragma once

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Drops a key of the file that a command-line key excludes, and resolves `batch_size` and the keys that say
// how often to evaluate and to save. Problems: E-CONFIG-CONFLICT naming both keys, and -RANGE for
// `batch_size`.
void settle_keys(Node& map, Problems& problems);
// Adds the problem E-CONFIG-MISSING, which names the required keys that are absent.
void check_required(const Node& map, Problems& problems);

}  // namespace tessera::config
