// Runs a program as a user does, and keeps its output.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/testing/paths.h"

namespace tessera::testing {

using Words = std::vector<std::string>;

struct ProgramResult {
  int exit_code = -1;  // of a normal end; -1 otherwise
  int signal = 0;      // the signal that ended it, or 0
  bool has_timed_out = false;
  std::string out, err;

  Words error_lines() const { return lines_with(err, "error["); }
  static Words lines(const std::string& text) {
    Words result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }
  static Words lines_with(const std::string& text, std::string_view part) {
    Words result = lines(text);
    std::erase_if(result, [&](const std::string& line) { return line.find(part) == std::string::npos; });
    return result;
  }
  // Returns everything in one text, for the message of a failing test.
  std::string told() const {
    return "exit code " + std::to_string(exit_code) + ", signal " + std::to_string(signal) +
           (has_timed_out ? ", timed out" : "") + "\n--- stdout\n" + out + "--- stderr\n" + err;
  }
};

constexpr int kCannotPrepare = 125;

struct RunOptions {
  double timeout_s = 120.0;  // time after which the program and its children are killed
  std::map<std::string, std::string> environment;
  std::string folder;                  // the folder to run in; empty = the current one
  bool has_closed_stdout = false;      // stdout is a pipe that nobody reads
  bool has_empty_environment = false;  // the program gets no variables but those of `environment`
  // Runs in the new process before the program, to set limits or namespaces. It ends the process by
  // _exit(kCannotPrepare) if the machine does not permit that.
  std::function<void()> prepare;
  // Both are called about every 10 ms while the program runs, with its process id; while_talking also gets
  // the text that it has written to stderr by then.
  std::function<void(pid_t)> while_running;
  std::function<void(pid_t, const std::string& err)> while_talking;
};

namespace detail {

inline std::string contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char block[4096];
  for (size_t count; (count = std::fread(block, 1, sizeof block, file)) > 0;) text.append(block, count);
  return text;
}

// Returns the contents of a file that a program is writing, without moving the position at which it goes on.
inline std::string contents_so_far(std::FILE* file) {
  std::string text;
  char block[4096];
  for (ssize_t count; (count = pread(fileno(file), block, sizeof block, std::ssize(text))) > 0;)
    text.append(block, static_cast<size_t>(count));
  return text;
}

// Prepares a new process for a program.
inline void prepare(const RunOptions& options, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
  // If a launcher runs the tests, the program must not take it for its own launcher.
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID"})
    unsetenv(name);
  setenv("OMP_NUM_THREADS", "1", 1);
  if (options.has_empty_environment) clearenv();
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  std::FILE* nothing = std::fopen("/dev/null", "r");
  dup2(fileno(nothing), STDIN_FILENO);
  if (options.has_closed_stdout) {
    int ends[2];
    if (pipe(ends) != 0) _exit(126);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
  } else {
    dup2(out, STDOUT_FILENO);
  }
  dup2(err, STDERR_FILENO);
  if (options.prepare) options.prepare();
}

[[noreturn]] inline void become(const Words& command) {
  std::vector<char*> pointers;
  for (const std::string& word : command) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  _exit(127);
}

// Runs `body`, which ends the process, in a new process.
inline ProgramResult run_in_new_process(const std::function<void()>& body, const RunOptions& options) {
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  if (out == nullptr || err == nullptr) throw std::runtime_error("no temporary file");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    prepare(options, fileno(out), fileno(err));
    body();
  }

  ProgramResult result;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (seconds() > options.timeout_s) {
      // SIGTERM comes first: a launcher then ends its ranks. SIGKILL follows ten seconds later.
      if (!result.has_timed_out) kill(-child, SIGTERM);
      if (result.has_timed_out && seconds() > options.timeout_s + 10.0) kill(-child, SIGKILL);
      result.has_timed_out = true;
    }
    if (options.while_running) options.while_running(child);
    if (options.while_talking) options.while_talking(child, detail::contents_so_far(err));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = contents(out);
  result.err = contents(err);
  std::fclose(out);
  std::fclose(err);
  return result;
}

}  // namespace detail

inline ProgramResult run_command(const Words& command, const RunOptions& options = {}) {
  return detail::run_in_new_process([&] { detail::become(command); }, options);
}

// Runs the program and ends the process, in test programs that are linked with its body
// (tests/integration/own_start.cpp).
inline void (*run_body)(const std::string& path, const Words& arguments) = nullptr;

// Runs the built program with these arguments. A test program that is linked with the program's body calls it
// in a fork of its own process, unless the environment is another or something is prepared: a new start costs
// half a second of LibTorch's initialisers.
inline ProgramResult tessera_program(Words arguments, const RunOptions& options = {}) {
  const bool is_usual = options.environment.empty() && !options.has_empty_environment && !options.prepare;
  if (run_body != nullptr && is_usual) {
    return detail::run_in_new_process([&] { run_body(program_path(), arguments); }, options);
  }
  arguments.insert(arguments.begin(), program_path());
  return run_command(arguments, options);
}

// Returns the command line of mpirun as the tests use it; `rest` starts with "-n".
inline Words mpirun(const Words& rest) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  Words command = {"mpirun", "--oversubscribe", "--bind-to", "none"};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

}  // namespace tessera::testing
