// Reads the definition of one task or group from the YAML of a task file.
#pragma once

#include "tessera/config/node.h"
#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

// Returns the task of a map whose `include` is merged already. Throws Error(Config) at the place of a key
// that is unknown, that has a wrong value, or that needs Python.
TaskConfig read_task(const config::Node& map);

// Returns the group of a map, without its members.
GroupConfig read_group(const config::Node& map);

}  // namespace tessera::scoring
