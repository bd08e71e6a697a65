// Rules between the values of a filled recipe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Collects the findings of rules: a finding counts unless one of its keys already has a problem. References
// the recipe and the problems, which must outlive it.
class Rules {
 public:
  Rules(const Recipe& recipe, Problems& problems) : recipe_(recipe), problems_(problems) {}

  const Recipe& recipe() const { return recipe_; }

  // Makes a config error named `name`, at the place of `key`.
  Error error(std::string_view name, std::string what, const std::string& key) const;
  // Adds `error` as a problem of the first of `keys`, unless one of `keys` already has a problem.
  void refuse(const std::vector<std::string>& keys, const Error& error);
  void warn(const std::string& key, const std::string& text);

 private:
  const Recipe& recipe_;
  Problems& problems_;
};

// Checks the keys about datasets, chat templates, the order of rows and streaming.
void validate_data(Rules& rules);
// Checks the keys of the upload to the hub.
void validate_upload(Rules& rules);
// Checks the learning-rate schedule and the learning rates of parts of the model.
void validate_learning_rates(Rules& rules);

}  // namespace tessera::config
