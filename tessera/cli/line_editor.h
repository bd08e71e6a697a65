// Lines that someone types at a terminal, with the editing and the history of libedit.
#pragma once

#include <optional>
#include <string>

#include <locale.h>

#include "tessera/core/shared_library.h"

namespace tessera::cli {

// Opens libedit, which this machine may not have. Standard input and output must be terminals. The history
// lives as long as the process.
class LineEditor {
 public:
  LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  bool is_usable() const { return library_.is_usable(); }
  // Shows the prompt and returns the line that is typed behind it, without its end; nullopt at the end of the
  // input. The editor must be usable.
  std::optional<std::string> next_line(const std::string& prompt) const;

 private:
  using Command = int(int count, int key);

  SharedLibrary library_;
  char* (*readline_)(const char* prompt) = nullptr;
  int (*add_history_)(const char* line) = nullptr;
  void (*stifle_history_)(int lines) = nullptr;
  int (*bind_key_)(int key, Command* command) = nullptr;
  Command* insert_ = nullptr;
  locale_t utf8_ = nullptr;  // null if the C library has no such locale
};

}  // namespace tessera::cli
