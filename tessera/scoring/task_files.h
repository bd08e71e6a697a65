// Finds tasks and groups by their names: in task files, beside them, and among those that come with Tessera.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

struct TaskSelection {
  std::vector<TaskConfig> tasks;    // each once, in the order in which they are first named
  std::vector<GroupConfig> groups;  // a group stands before the groups in it
};

// Returns the tasks that the names stand for. A name is the path of a task file, or the name of a built-in
// task, group or tag. Members of a group are searched for in the folder of its file, then among the built-in
// ones. Throws Error(Config) at the place of what is wrong in a file, and for an unknown name.
TaskSelection select_tasks(const std::vector<std::string>& names);

// Returns the names of the built-in tasks and groups, sorted.
std::vector<std::string> builtin_task_names();

// A file tasks/<name>.yaml, which the build embeds.
struct TaskFile {
  std::string_view name, source;
};
std::span<const TaskFile> builtin_task_files();

}  // namespace tessera::scoring
