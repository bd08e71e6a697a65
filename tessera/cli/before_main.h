// Prepares the process before the initialisers of its libraries run.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Prepares the process. The program has the system call it before the initialisers of its libraries run:
// - standard streams that are closed are opened on /dev/null: no file of the program gets their numbers;
// - soft limits on the stack and on open files that are small are raised as far as the hard ones allow;
// - the program ends with one line if the working folder is gone, or if address space or stack are too
//   small for the libraries to start;
// - OpenMP's waiting threads get a short spin, unless the environment says otherwise.
void before_libraries(int count, char** arguments, char** environment);

// Gives standard error back, and returns the lines that libraries wrote to it while they were initialised,
// which before_libraries() keeps back until then. Must be called before any output.
std::vector<std::string> words_of_libraries();

// Describes for doctor how OpenMP's threads wait.
std::string describe_wait_policy();

// Returns the path of this process's own file; "" if the system does not tell.
std::string own_path();

}  // namespace tessera::cli
