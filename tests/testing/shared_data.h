// Data that is not in the repository.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

// The folder that TESSERA_SHARED_DATA names; empty where it is not set or holds no `file`. Tests are then
// skipped by skip::kSharedData.
inline std::string shared_data(const std::string& file) {
  const char* folder = std::getenv("TESSERA_SHARED_DATA");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path(folder) / file)) return "";
  return folder;
}

}  // namespace tessera::testing
