// The adapters that a verb applies to a model: one, or several that are combined.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/command_line.h"

namespace tessera::cli {

class AdapterOptions {
 public:
  std::vector<std::string> texts;  // as peft::read_weighted_adapter() reads them
  std::string combination = "cat";

  bool empty() const { return texts.empty(); }
  // Returns the folder of the adapter; empty if there is none. Several, or one with a weight, are combined
  // into a folder for temporary files, which is removed with the last copy of these options. Throws what
  // peft::combine_adapters() throws.
  const std::string& folder();
  // Returns the adapters that have names, in the order in which these come first: the texts of one name are
  // options of their own, combined as folder() does. Returns nothing if no text has a name. Throws
  // Error(Config, "ADAPTER-NAME") if only some texts have one.
  std::vector<std::pair<std::string, AdapterOptions>> by_name() const;

 private:
  class Combined;
  std::string folder_;
  std::shared_ptr<const Combined> combined_;
};

inline constexpr const char* kAdapterHelp = "Folder of an adapter to apply to the model";

// Adds --adapter, which may be repeated, and --combination to the verb. `help` says what the adapters are
// for.
void add_adapter_options(CLI::App& verb, CommandLine& line, AdapterOptions& options, const std::string& help);

}  // namespace tessera::cli
