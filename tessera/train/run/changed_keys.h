// The keys of a recipe that change the numbers of a run's steps.
#pragma once

#include <string>
#include <vector>

namespace tessera::train {

struct ChangedKey {
  std::string name;
  std::string before, now;  // as dump_recipe() writes them; a list or map may have several lines
};

// Compares two texts of dump_recipe(). Returns the keys of either that change the numbers of the steps and
// differ. A key that `before` lacks, since an older program wrote it, had its
// default. Every key counts, unless it is known to change no number: what says where files lie, when a run
// evaluates, saves or reports, and how its work is spread over memory and ranks. The dtype and the batch do
// not count either: a checkpoint notes what they came to.
std::vector<ChangedKey> changed_keys(const std::string& before, const std::string& now);

}  // namespace tessera::train
