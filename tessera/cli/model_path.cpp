#include "tessera/cli/model_path.h"

#include <filesystem>
#include <string>

#include "tessera/config/hub_cache.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// Resolves `path` in place. Returns the text of what is wrong with it, or "".
std::string resolve(std::string& path, bool takes_files) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || (takes_files && fs::exists(path, ignored))) return "";
  if (fs::exists(path, ignored)) return "not a folder: " + path;
  if (const auto snapshot = config::find_in_hub_cache(config::HubKind::Model, path, "")) {
    path = *snapshot;
    return "";
  }
  std::string text = std::string(takes_files ? "Path" : "Directory") + " does not exist: " + path;
  if (config::is_hub_id(path)) {
    text += "; nothing is downloaded, and " + config::hub_cache_folder() +
            " has no model of this name: " + config::download_command(config::HubKind::Model, path, "");
  }
  return text;
}

}  // namespace

CLI::Validator model_path() {
  return {[](std::string& path) { return resolve(path, true); }, "PATH|ORG/NAME", "model"};
}

CLI::Validator model_folder() {
  return {[](std::string& path) { return resolve(path, false); }, "DIR|ORG/NAME", "model"};
}

}  // namespace tessera::cli
