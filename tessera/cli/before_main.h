// What the process sets up for itself before the initialisers of its libraries run.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// What happens there, without any call by main():
// - standard streams that are closed are opened on /dev/null: no file of the program gets their numbers;
// - soft limits on the stack and on open files that are small are raised as far as the hard ones allow;
// - the program ends with one line where the working folder is gone, or where address space or stack are too
//   small for the libraries to start;
// - OpenMP's waiting threads get a short spin, unless the environment says otherwise.

// The lines that libraries wrote to standard error while they were initialised, which are kept back. Call it
// first in main(): it gives standard error back.
std::vector<std::string> words_of_libraries();

// How OpenMP's threads wait, for doctor.
std::string describe_wait_policy();

// The program's own file; empty where the system does not tell.
std::string program_path();

}  // namespace tessera::cli
