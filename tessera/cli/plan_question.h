// A recipe's training and the cluster that is to run it, for the verbs that foresee a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/model_work.h"

namespace tessera::cli {

inline constexpr const char* kClusterHelp =
    "A YAML file of devices and links, a name such as 8xH100 or 64x8xH100, or cpu or 2xcpu for ranks on this "
    "machine";

struct PlanQuestion {
  planner::Cluster cluster;
  planner::ModelWork work;
  planner::Job job;
  planner::Choice kept;  // kept_choice() of the recipe
  planner::Software software = planner::kTessera;
};

// Returns how many ranks on this processor "cpu" or "4xcpu" stands for; nothing for another name.
std::optional<int64_t> ranks_of_processor(const std::string& cluster);

// Reads the cluster that `cluster` names, or measures this processor, and counts the work of the recipe's
// model. Warns where states are to lie on a drive for which the recipe names no folder, and plans none then.
// Throws Error(Config) for a precision that the device does not have, and what load_cluster() and
// open_recipe_base() throw.
PlanQuestion plan_question(const config::Recipe& recipe, const std::string& cluster);

// Writes the recipe of a file with key=value overrides, and with absolute paths, to `path`; says so in the
// log. Throws what load_recipe() throws.
void write_changed_recipe(const std::string& recipe, const std::vector<std::string>& overrides,
                          const std::string& path);

}  // namespace tessera::cli
