// Lines for the user on standard error. Only rank 0 speaks, unless told otherwise.
#pragma once

#include <cstdio>
#include <string_view>

namespace tessera::log {

// Silences info() and warn() of this process; the launcher's non-zero ranks call it at start.
void set_quiet(bool quiet);
// Silences them while it lives.
class Silence {
 public:
  Silence();
  ~Silence();
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  const bool was_quiet_;
};

// The stream to which lines go: standard error, unless set_stream() named an open descriptor, which it takes
// over. Call set_stream() at the start of the program, before another thread speaks.
std::FILE* stream();
void set_stream(int descriptor);

// Writes "tessera: <text>".
void info(std::string_view text);
// Writes "tessera: warning: <text>".
void warn(std::string_view text);
// Writes "tessera: <text>" from any rank, for messages about work that one process does for all.
void tell(std::string_view text);
// Writes "tessera: <line>" for each line of `text`, from any rank: for what ends the process.
void error(std::string_view text);

}  // namespace tessera::log
