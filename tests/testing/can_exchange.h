// Tells whether two folders can be exchanged in the place where tests keep theirs; not every file system can.
#pragma once

#include <filesystem>

#include "tessera/io/disk_calls.h"

#include "tests/testing/temp_folder.h"

namespace tessera::testing {

inline bool can_exchange_folders() {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "one");
  std::filesystem::create_directory(folder / "other");
  return io::disk::exchange(folder / "one", folder / "other") == 0;
}

}  // namespace tessera::testing
