// Filters: what is made of the answers of a model before they are compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/scoring/regex_filter.h"
#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

// Returns the keys that a step with this function may have. Throws Error(Config) at the entry for a function
// that there is not.
std::vector<std::string> filter_keys(const std::string& function, const config::Entry& entry);
// Returns why a chain cannot be used for the output type; "" if it can.
std::string problem_of_chain(const FilterChain& chain, OutputType type);

// A chain that is ready to be applied.
class Filters {
 public:
  // Throws Error(Config) for arguments that a filter cannot take.
  explicit Filters(const FilterChain& chain);

  // Throws Error(Data, "TASK-FILTER") for a document that a filter cannot read.
  void check(const Json& document) const;
  // Returns what the chain makes of all answers to one request about the document. Throws what check()
  // throws.
  std::string apply(std::vector<std::string> answers, const Json& document) const;

 private:
  struct Step {
    std::string function;
    Json arguments;
    std::optional<RegexFilter> regex;
  };
  std::vector<Step> steps_;
};

}  // namespace tessera::scoring
