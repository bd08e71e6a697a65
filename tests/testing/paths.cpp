#include "tests/testing/paths.h"

namespace tessera::testing {

const std::string& source_folder() {
  static const std::string path = TESSERA_SOURCE_DIR;
  return path;
}

const std::string& program_path() {
  static const std::string path = TESSERA_BINARY;
  return path;
}

}  // namespace tessera::testing
