// Whether folders can be exchanged where the tests keep theirs: not on every file system.
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
