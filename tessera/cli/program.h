// The program: parses the command line, runs a verb, and turns every error into one line and an exit code.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Runs the program with these arguments, which do not include its name, and returns its exit code. `path` is
// the program's file, which launched ranks run; "" if it is not known. Must be called once in a process,
// before anything else of the library.
int run_program(const std::string& path, const std::vector<std::string>& arguments);

// Flushes the standard streams and ends the process without running the destructors of static objects: those
// of LibTorch unregister each of its operators, which takes a fifth of a second. Builds with a sanitizer run
// the destructors, after which the sanitizer looks for leaks.
[[noreturn]] void end_process(int exit_code);

// Returns the path of the program's file; "" if it is not known.
const std::string& program_path();

}  // namespace tessera::cli
