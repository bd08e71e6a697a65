// Helpers of these tests: folders that all ranks of a test share, recipes, and metrics.
#pragma once

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/comm/communicator.h"
#include "tessera/config/load_recipe.h"
#include "tessera/io/file.h"

#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::testing {

inline std::string reference_data(const std::string& name) {
  return source_folder() + "/tests/reference/data/" + name;
}

// A folder for all ranks, which the first one makes and removes. Collective.
class SharedFolder {
 public:
  explicit SharedFolder(std::shared_ptr<comm::Communicator> world) : world_(std::move(world)) {
    if (world_->rank() == 0) own_.emplace();
    path_ = world_->all_gather_string(own_ ? own_->path() : "").front();
  }
  ~SharedFolder() { world_->barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  bool is_owner() const { return own_.has_value(); }

 private:
  std::shared_ptr<comm::Communicator> world_;
  std::optional<TempFolder> own_;
  std::string path_;
};

// Returns the recipe `text`, read from a file of `folder`.
inline config::Recipe recipe_of(const SharedFolder& folder, const std::string& text,
                                const std::shared_ptr<comm::Communicator>& world) {
  if (folder.is_owner()) io::write_file_atomic(folder / "recipe.yaml", text);
  world->barrier();
  return config::load_recipe(folder / "recipe.yaml");
}

// Returns the lines of a metrics.jsonl that hold `key`.
inline std::vector<nlohmann::json> metrics_with(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    auto parsed = nlohmann::json::parse(line);
    if (parsed.contains(key)) lines.push_back(std::move(parsed));
  }
  return lines;
}

}  // namespace tessera::testing
