#include "tessera/core/log.h"

#include <atomic>
#include <cstdio>
#include <ctime>
#include <string>
#include <sys/ioctl.h>

#include <unistd.h>

#include "tessera/core/environment.h"
#include "tessera/core/log_detail.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/terminal_text.h"
#include "tessera/core/utf8.h"

namespace tessera::log {
namespace {

std::atomic<bool> is_quiet{false};
std::atomic<Detail> current_detail{Detail::Usual};
std::FILE* other_stream = nullptr;

std::atomic<bool> has_open_line{false};

constexpr std::string_view kRed = "\033[31m", kYellow = "\033[33m", kPlain = "\033[0m";

// Puts a colour around `text` on a terminal, unless NO_COLOR is set (no-color.org).
std::string colored(std::string_view color, std::string_view text) {
  if (!is_terminal() || environment::get("NO_COLOR")) return std::string(text);
  return std::string(color).append(text).append(kPlain);
}

// Returns the first `count` characters of `text`.
std::string_view first_characters(std::string_view text, size_t count) {
  size_t size = 0;
  for (; count > 0 && size < text.size(); --count) size += utf8_step(text, size);
  return text.substr(0, size);
}

void write_line(std::string_view prefix, std::string_view text) {
  std::string line;
  line.reserve(prefix.size() + text.size() + 32);
  if (has_open_line.exchange(false)) line.push_back('\n');
  line += time_stamp();
  // Names and values of others are in the text.
  line.append(prefix).append(terminal_text(text, LineBreaks::Keep)).push_back('\n');
  // One write a line, so that lines of several ranks do not mix. A closed stderr must not stop training.
  (void)std::fwrite(line.data(), 1, line.size(), stream());
}

}  // namespace

void set_quiet(bool quiet) { is_quiet = quiet; }

Silence::Silence() : was_quiet_(is_quiet.exchange(true)) {}
Silence::~Silence() { is_quiet = was_quiet_; }

void set_detail(Detail detail) { current_detail = detail; }
Detail detail() { return current_detail; }

std::string time_stamp() {
  if (current_detail != Detail::All) return "";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  if (localtime_r(&now, &parts) == nullptr) return "";
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S ", &parts));
}

std::FILE* stream() { return other_stream != nullptr ? other_stream : stderr; }

void set_stream(int descriptor) {
  std::FILE* const opened = fdopen(descriptor, "w");
  if (opened == nullptr) return;
  // Unbuffered, like standard error, so that every write is seen at once.
  std::setvbuf(opened, nullptr, _IONBF, 0);
  other_stream = opened;
}

bool is_terminal() { return isatty(fileno(stream())) != 0; }

void show_open_line(std::string_view text) {
  if (current_detail == Detail::Few) return;
  const std::string line = terminal_text(text);
  winsize size{};
  const bool has_width = ioctl(fileno(stream()), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A line as wide as the terminal would wrap on some of them, and then be written below itself.
  const std::string_view shown = has_width ? first_characters(line, size.ws_col - 1) : std::string_view(line);
  std::fprintf(stream(), "\r\033[K%.*s", static_cast<int>(shown.size()), shown.data());
  std::fflush(stream());
  has_open_line = true;
}

void clear_open_line() {
  if (has_open_line.exchange(false)) std::fputs("\r\033[K", stream());
}

void end_open_line() {
  if (has_open_line.exchange(false)) std::fputc('\n', stream());
}

void info(std::string_view text) {
  if (!is_quiet && current_detail != Detail::Few) write_line("tessera: ", text);
}

void warn(std::string_view text) {
  if (!is_quiet) write_line("tessera: " + colored(kYellow, "warning:") + " ", text);
}

void tell(std::string_view text) { write_line("tessera: ", text); }

void error(std::string_view text) {
  while (true) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    // The colour is that of the code alone, "error[E-...]:".
    const size_t code = line.starts_with("error[") ? line.find("]:") : std::string_view::npos;
    const size_t size = code == std::string_view::npos ? 0 : code + 2;
    write_line(size == 0 ? "tessera: " : "tessera: " + colored(kRed, line.substr(0, size)),
               line.substr(size));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace tessera::log
