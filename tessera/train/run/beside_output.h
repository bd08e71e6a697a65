// Names files of a run that stand beside its output folder.
#pragma once

#include <string>

namespace tessera::train {

// Returns "<output_dir>.tessera-<name>"; slashes at the end of the folder do not count.
inline std::string beside_output(const std::string& output_dir, const std::string& name) {
  return output_dir.substr(0, output_dir.find_last_not_of('/') + 1) + ".tessera-" + name;
}

}  // namespace tessera::train
