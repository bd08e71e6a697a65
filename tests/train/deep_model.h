// Makes a family's reference model with more layers, or with other sizes.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/models/reference_models.h"
#include "tests/testing/temp_folder.h"
#include "tests/train/parity_families.h"

namespace tessera::train {

// A folder with a config.json alone: the model's weights are random, and the same on every rank.
class DeepModel {
 public:
  // `changes` holds keys of config.json with their new values.
  DeepModel(const std::string& family, int64_t layers, const nlohmann::json& changes = {}) {
    nlohmann::json config;
    std::ifstream(models::reference_folder(family) + "/config.json") >> config;
    config[parity_family(family).layers_key] = layers;
    config["initializer_range"] = 0.3;
    if (changes.is_object()) config.update(changes);
    std::ofstream(folder_.path() + "/config.json") << config.dump();
  }
  std::string path() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
};

// Returns the model of a row that changes its family's configuration; null for the other rows, which have the
// family's reference model.
inline std::unique_ptr<DeepModel> changed_model(const ParityFamily& family, int64_t layers) {
  if (family.changes.is_null()) return nullptr;
  return std::make_unique<DeepModel>(family.name, layers, family.changes);
}

}  // namespace tessera::train
