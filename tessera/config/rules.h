// Rules between the values of a filled recipe.
#pragma once

#include <optional>
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

  // Add a config error named `name` as a problem of the first of `keys`, at its place, unless one of `keys`
  // already has a problem: "key '<first key>': <what>", or `text` as it is. They return the error, of which
  // more may be said until the next call.
  Error& refuse(std::string_view name, const std::vector<std::string>& keys, const std::string& what) {
    return refuse_text(name, keys, "key '" + keys.front() + "': " + what);
  }
  Error& refuse_text(std::string_view name, const std::vector<std::string>& keys, const std::string& text);
  // Warn of `key`: "key '<key>': <what>", "key '<key>' has no effect <why>", and "key '<key>' <text>".
  void warn(const std::string& key, const std::string& what) { warn_at(key, ": " + what); }
  void warn_idle(const std::string& key, const std::string& why) { warn_at(key, " has no effect " + why); }
  void warn_text(const std::string& key, const std::string& text) { warn_at(key, " " + text); }

 private:
  void warn_at(const std::string& key, const std::string& behind_key);

  const Recipe& recipe_;
  Problems& problems_;
  std::optional<Error> ignored_;  // the last one that was not added
};

// Checks the keys of adapters, each by the kind of adapter.
void validate_adapter(Rules& rules);
// Checks the optimizer's options, and what it can do.
void validate_optimizer(Rules& rules);
// Checks the keys about datasets, chat templates, the order of rows and streaming.
void validate_data(Rules& rules);
// Checks the keys of the task, and what cannot be with it.
void validate_task(Rules& rules);
// Checks the keys of the upload to the hub.
void validate_upload(Rules& rules);
// Checks the learning-rate schedule and the learning rates of parts of the model.
void validate_learning_rates(Rules& rules);

}  // namespace tessera::config
