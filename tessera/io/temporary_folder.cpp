#include "tessera/io/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tessera/core/error.h"

namespace tessera::io {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& purpose) {
  path_ = (fs::temp_directory_path() / "tessera-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ErrorKind::Storage, "TEMPORARY", "no folder for " + purpose)
        .at(path_)
        .got(std::strerror(errno))
        .hint("TMPDIR names a folder for temporary files");
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tessera::io
