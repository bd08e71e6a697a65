#include "tessera/cli/command_line.h"

#include <string>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"

namespace tessera::cli {
namespace {

// Returns the text of what is wrong with the path, or "".
std::string fault_of(const std::string& path, Takes takes) {
  const bool takes_files = takes == Takes::Model;
  if (io::exists(path)) return takes_files || io::is_folder(path) ? "" : "not a folder: " + path;
  if (hub::is_fetchable(path) || hub::find_snapshot({hub::Kind::Model, path, ""})) return "";
  return std::string(takes_files ? "Path" : "Directory") + " does not exist: " + path;
}

}  // namespace

void CommandLine::set_action(CLI::App& verb, Action action) {
  verb.callback([this, action = std::move(action)] { action_ = action; });
}

CLI::Option* CommandLine::add_model(CLI::App& verb, const std::string& name, std::string& value,
                                    const std::string& help, Takes takes) {
  models_.push_back({&value, takes});
  return verb.add_option(name, value, help)
      ->check(CLI::Validator([takes](const std::string& path) { return fault_of(path, takes); },
                             takes == Takes::Model ? "PATH|ORG/NAME" : "DIR|ORG/NAME", "model"));
}

void CommandLine::fetch_models() const {
  for (const auto& [value, takes] : models_) {
    if (value->empty() || io::exists(*value)) continue;
    const auto name = hub::parse_name(*value);
    if (!name) continue;
    try {
      const auto want = takes == Takes::Adapter ? hub::Want::Adapter : hub::Want::Model;
      *value = hub::fetch_model(*value, "", want).value_or(*value);
    } catch (Error& error) {
      error.within("no such path: " + *value);
      throw;
    }
  }
}

}  // namespace tessera::cli
