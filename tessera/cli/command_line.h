// The command line of this process: what was typed, what the chosen verb does, and the models that it names.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace tessera::cli {

// The work of a verb; returns the exit code.
using Action = std::function<int()>;

// Says what an option that names a model takes beside a folder.
enum class Takes {
  Model,    // a GGUF file
  Folder,   // nothing
  Adapter,  // nothing, and the folder is an adapter's
};

// Verbs add themselves to it before parsing; their actions may reference it.
class CommandLine {
 public:
  explicit CommandLine(std::vector<std::string> arguments) : arguments(std::move(arguments)) {}
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // The arguments as typed, without the program's name; the launcher passes them to the ranks.
  const std::vector<std::string> arguments;

  // Says what `verb` does. action() gives the work of the verb that was parsed last.
  void set_action(CLI::App& verb, Action action);
  const Action& action() const { return action_; }

  // Adds an option to `verb` that sets `value` to a path or the name of a model of the hub. Parsing refuses
  // what can be neither.
  CLI::Option* add_model(CLI::App& verb, const std::string& name, std::string& value, const std::string& help,
                         Takes takes = Takes::Model);
  // Adds an option that may be repeated, whose values name adapters with their weights
  // (peft::read_weighted_adapter()): folders or names of the hub.
  CLI::Option* add_adapters(CLI::App& verb, const std::string& name, std::vector<std::string>& values,
                            const std::string& help);
  // Replaces the names of the hub in these values by their folders in the cache, and downloads what is not
  // there (hub/fetch.h). Called once, after parsing.
  void fetch_models() const;

 private:
  struct Named {
    std::string* value;
    Takes takes;
  };
  Action action_;
  std::vector<std::vector<std::string>*> adapters_;
  std::vector<Named> models_;  // the values of verbs that are not called stay empty
};

}  // namespace tessera::cli
