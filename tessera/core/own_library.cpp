#include "tessera/core/own_library.h"

#include <filesystem>

namespace tessera {

std::string find_own_library(const std::string& file_name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {".", "..", "../lib", "../lib/tessera", "../lib/x86_64-linux-gnu"}) {
    const fs::path path = folder / place / file_name;
    if (!error && fs::exists(path, error)) return path.lexically_normal().string();
    error.clear();
  }
  return "";
}

}  // namespace tessera
