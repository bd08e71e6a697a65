#include "tessera/io/file_pattern.h"

#include <fnmatch.h>

namespace tessera::io {

bool fits_pattern(const std::string& name, const std::string& pattern) {
  const bool crosses = pattern.find("**") != std::string::npos;
  const auto fits = [&](const std::string& text) {
    return ::fnmatch(text.c_str(), name.c_str(), crosses ? 0 : FNM_PATHNAME) == 0;
  };
  if (fits(pattern)) return true;
  const size_t at = pattern.find("**/");
  return at != std::string::npos && fits(std::string(pattern).erase(at, 3));
}

}  // namespace tessera::io
