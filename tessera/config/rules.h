// Rules between the values of a filled recipe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Where rules say what they find: each counts unless one of its keys has a problem of its own. Does not own
// the recipe and the problems.
class Rules {
 public:
  Rules(const Recipe& recipe, Problems& problems) : recipe_(recipe), problems_(problems) {}

  const Recipe& recipe() const { return recipe_; }

  // A config error named `name`, at the place of `key`.
  Error error(std::string_view name, std::string what, const std::string& key) const;
  // A problem of the first of `keys`, unless one of them has a problem.
  void refuse(const std::vector<std::string>& keys, const Error& error);
  void warn(const std::string& key, const std::string& text);

 private:
  KeyPlace place_of(const std::string& key) const;

  const Recipe& recipe_;
  Problems& problems_;
};

// Datasets, templates, the order of rows, streams.
void validate_data(Rules& rules);
// Learning rates: the schedule, and those of parts of the model.
void validate_learning_rates(Rules& rules);

}  // namespace tessera::config
