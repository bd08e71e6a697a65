#include "tessera/core/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "tessera/core/terminal_text.h"

namespace tessera::log {
namespace {

std::atomic<bool> is_quiet{false};
std::FILE* other_stream = nullptr;

void write_line(std::string_view prefix, std::string_view text) {
  std::string line;
  line.reserve(prefix.size() + text.size() + 1);
  // Names and values of others are in the text.
  line.append(prefix).append(terminal_text(text, LineBreaks::Keep)).push_back('\n');
  // One write a line, so that lines of several ranks do not mix. A closed stderr must not stop training.
  (void)std::fwrite(line.data(), 1, line.size(), stream());
}

}  // namespace

void set_quiet(bool quiet) { is_quiet = quiet; }

std::FILE* stream() { return other_stream != nullptr ? other_stream : stderr; }

void set_stream(int descriptor) {
  std::FILE* const opened = fdopen(descriptor, "w");
  if (opened == nullptr) return;
  // Unbuffered, like standard error, so that every write is seen at once.
  std::setvbuf(opened, nullptr, _IONBF, 0);
  other_stream = opened;
}

void info(std::string_view text) {
  if (!is_quiet) write_line("tessera: ", text);
}

void warn(std::string_view text) {
  if (!is_quiet) write_line("tessera: warning: ", text);
}

void error(std::string_view text) {
  while (true) {
    const size_t end = text.find('\n');
    write_line("tessera: ", text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace tessera::log
