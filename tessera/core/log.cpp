#include "tessera/core/log.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace tessera::log {
namespace {

std::atomic<bool> is_quiet{false};

void write_line(std::string_view prefix, std::string_view text) {
  std::string line;
  line.reserve(prefix.size() + text.size() + 1);
  line.append(prefix).append(text).push_back('\n');
  // One write a line, so that lines of several ranks do not mix. A closed stderr must not stop training.
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void set_quiet(bool quiet) { is_quiet = quiet; }

void info(std::string_view text) {
  if (!is_quiet) write_line("tessera: ", text);
}

void warn(std::string_view text) {
  if (!is_quiet) write_line("tessera: warning: ", text);
}

void error(std::string_view text) { write_line("tessera: ", text); }

}  // namespace tessera::log
