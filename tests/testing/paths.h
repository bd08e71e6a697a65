// Paths of the sources and of the built program. They are defined in one object file, so that no test
// depends on the folder it is compiled in and compiler caches serve every checkout.
#pragma once

#include <string>

namespace tessera::testing {

const std::string& source_folder();
const std::string& program_path();

}  // namespace tessera::testing
