// What keys of a translated map mean together, before they are bound.
#pragma once

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Resolves DeepSpeed-like `batch_size` and how often to evaluate, and
// drops a key of the file that a command-line key excludes. Problems: E-CONFIG-CONFLICT naming both keys.
void settle_keys(Node& map, Problems& problems);
// Problem: E-CONFIG-MISSING, naming the required keys that are absent.
void check_required(const Node& map, Problems& problems);

}  // namespace tessera::config
