// Libraries of Tessera's own that the program opens while it runs, where the build has made them.
#pragma once

#include <string>

namespace tessera {

// The path of the library with this file name: beside the program, or where an installed or packaged program
// has its libraries. Empty where it is in none of these.
std::string find_own_library(const std::string& file_name);

}  // namespace tessera
