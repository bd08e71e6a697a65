#include "tessera/cli/model_path.h"

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/run_inputs.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct Named {
  std::string* value;
  Takes takes;
};

// The values of all options that name a model. Those of verbs that are not called stay empty.
std::vector<Named>& named_models() {
  static std::vector<Named> models;
  return models;
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns the text of what is wrong with the path, or "".
std::string fault_of(const std::string& path, Takes takes) {
  const bool takes_files = takes == Takes::Model;
  if (is_there(path)) return takes_files || io::is_folder(path) ? "" : "not a folder: " + path;
  if (hub::is_fetchable(path) || hub::find_snapshot({hub::Kind::Model, path, ""})) return "";
  return std::string(takes_files ? "Path" : "Directory") + " does not exist: " + path;
}

}  // namespace

CLI::Option* takes_model(CLI::Option* option, std::string& value, Takes takes) {
  named_models().push_back({&value, takes});
  return option->check(CLI::Validator([takes](const std::string& path) { return fault_of(path, takes); },
                                      takes == Takes::Model ? "PATH|ORG/NAME" : "DIR|ORG/NAME", "model"));
}

void forget_named_models() { named_models().clear(); }

void fetch_named_models() {
  for (const auto& [value, takes] : named_models()) {
    if (value->empty() || is_there(*value)) continue;
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
