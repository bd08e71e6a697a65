// Data that is not in the repository.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::testing {

// Returns the folder that TESSERA_SHARED_DATA names; empty if it is not set or the folder does not hold
// `file`. Tests are then skipped with skip::kSharedData.
inline std::string shared_data(const std::string& file) {
  const char* folder = std::getenv("TESSERA_SHARED_DATA");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path(folder) / file)) return "";
  return folder;
}

}  // namespace tessera::testing
