// Runs of the program on a disk that fails while it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/testing/paths.h"
#include "tests/testing/run_program.h"

namespace tessera::testing {

// Returns the options of a run whose read `number` of files below `folder` on rank `rank` fails as
// read_faults.cpp says; the fault "count" writes the number of reads into `folder`/count. If there is a
// `name`, only files whose path ends like this count.
inline RunOptions with_read_fault(const std::string& folder, const std::string& rank, int64_t number,
                                  const std::string& fault, const std::string& name = "") {
  RunOptions options;
  options.environment = {
      {"LD_PRELOAD", std::filesystem::path(program_path()).parent_path() / "tests/libread_faults.so"},
      {"READ_FAULT_FOLDER", folder},
      {"READ_FAULT_NAME", name},
      {"READ_FAULT_RANK", rank},
      {"READ_FAULT_NUMBER", std::to_string(number)},
      {"READ_FAULT", fault},
      {"READ_FAULT_COUNT", folder + "/count"}};
  return options;
}

}  // namespace tessera::testing
