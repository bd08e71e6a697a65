// Prepares the process before the initialisers of its libraries run.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// This happens without any call by main():
// - standard streams that are closed are opened on /dev/null: no file of the program gets their numbers;
// - soft limits on the stack and on open files that are small are raised as far as the hard ones allow;
// - the program ends with one line if the working folder is gone, or if address space or stack are too
//   small for the libraries to start;
// - OpenMP's waiting threads get a short spin, unless the environment says otherwise.

// Gives standard error back, and returns the lines that libraries wrote to it while they were initialised,
// which are kept back until then. Must be called first in main().
std::vector<std::string> words_of_libraries();

// Describes for doctor how OpenMP's threads wait.
std::string describe_wait_policy();

// Returns the path of the program's own file; "" if the system does not tell.
std::string program_path();

}  // namespace tessera::cli
