#include "tessera/cli/own_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "tessera/cli/program.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"

namespace tessera::cli {
namespace {

constexpr size_t kMostKept = 64 << 10;
constexpr double kGrace_s = 10.0;

// A pipe of which the child has the end for writing.
class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0)
      throw Error(ErrorKind::Config, "PROCESS", std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() { close(std::exchange(ends_[1], -1)); }
  // Reads what is there; returns false at the end.
  bool read_into(std::string& text) {
    char bytes[4096];
    const ssize_t count = read(ends_[0], bytes, sizeof bytes);
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    if (count == 0) return false;
    text.append(bytes, static_cast<size_t>(count));
    if (text.size() > kMostKept) text.erase(0, text.size() - kMostKept);
    return true;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t start(const std::vector<std::string>& arguments, const Pipe& output, const Pipe& errors) {
  std::vector<std::string> words = {"tessera"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string& program = program_path();
  const pid_t parent = getpid(), child = fork();
  if (child < 0) {
    throw Error(ErrorKind::Config, "PROCESS",
                std::string("this program cannot be started once more: ") + std::strerror(errno));
  }
  if (child > 0) return child;
  // It ends when this process does.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  dup2(output.writer(), STDOUT_FILENO);
  dup2(errors.writer(), STDERR_FILENO);
  for (const Pipe* pipe : {&output, &errors}) {
    close(pipe->reader());
    close(pipe->writer());
  }
  execv(program.c_str(), pointers.data());
  _exit(127);
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string OwnProcess::problem() const {
  std::string problem =
      is_timed_out ? "took longer than the time that it had" : "exit code " + std::to_string(exit_code);
  for (const std::string& line : lines_of(errors)) {
    if (line.find("error[") != std::string::npos) problem = line;
  }
  return problem;
}

OwnProcess run_own_process(const std::vector<std::string>& arguments, double limit_s) {
  Pipe output, errors;
  const pid_t child = start(arguments, output, errors);
  output.close_writer();
  errors.close_writer();
  OwnProcess process;
  const Timer timer;
  std::array<pollfd, 2> ends = {{{output.reader(), POLLIN, 0}, {errors.reader(), POLLIN, 0}}};
  const std::array<std::pair<Pipe*, std::string*>, 2> streams = {
      {{&output, &process.output}, {&errors, &process.errors}}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const double passed_s = timer.seconds();
    if (passed_s > limit_s) {
      kill(child, passed_s > limit_s + kGrace_s ? SIGKILL : SIGTERM);
      process.is_timed_out = true;
    }
    if (poll(ends.data(), ends.size(), 200) <= 0) continue;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd >= 0 && ends[i].revents != 0 && !streams[i].first->read_into(*streams[i].second))
        ends[i].fd = -1;
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  process.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return process;
}

}  // namespace tessera::cli
