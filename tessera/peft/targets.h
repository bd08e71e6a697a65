// Finds the modules that a LoRA configuration means.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera::peft {

// A regular expression over whole module names (ICU's syntax, which agrees with Python's in what module
// patterns use). Matching is bounded in time and memory.
class NamePattern {
 public:
  // Throws Error(Config, "LORA-TARGET") for an expression that does not parse.
  explicit NamePattern(const std::string& expression);
  ~NamePattern();
  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;

  // These throw the same error when matching takes too long.
  bool matches(const std::string& name) const;
  // Returns the expression's first group if it matches the beginning of the name; empty if not.
  std::string first_group(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tells whether `name` is `wanted` or ends in ".wanted".
bool is_module_named(const std::string& name, const std::string& wanted);
// Returns the part after the last dot; all of a name that has none.
std::string last_component(const std::string& name);

}  // namespace tessera::peft
