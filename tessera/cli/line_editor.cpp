#include "tessera/cli/line_editor.h"

#include <cstdlib>
#include <memory>

namespace tessera::cli {
namespace {

constexpr int kHistoryLines = 1000;

// While this object lives, this thread's characters are those of a locale.
class CharactersOf {
 public:
  explicit CharactersOf(locale_t locale) : before_(locale == nullptr ? nullptr : uselocale(locale)) {}
  CharactersOf(const CharactersOf&) = delete;
  CharactersOf& operator=(const CharactersOf&) = delete;
  ~CharactersOf() {
    if (before_ != nullptr) uselocale(before_);
  }

 private:
  locale_t before_;
};

}  // namespace

LineEditor::LineEditor() : library_({"libedit.so.2"}) {
  library_.find(readline_, "readline");
  library_.find(add_history_, "add_history");
  library_.find(stifle_history_, "stifle_history");
  library_.find(bind_key_, "rl_bind_key");
  library_.find(insert_, "rl_insert");
  if (!is_usable()) return;
  // Messages are UTF-8, whatever the user's locale is.
  utf8_ = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const CharactersOf utf8(utf8_);
  stifle_history_(kHistoryLines);
  // The key would complete names of files.
  bind_key_('\t', insert_);
}

LineEditor::~LineEditor() {
  if (utf8_ != nullptr) freelocale(utf8_);
}

// The library puts the terminal into its own mode for the time of one line. It puts it back also before a
// signal such as an interrupt ends the program: that is what its signal handlers do.
std::optional<std::string> LineEditor::next_line(const std::string& prompt) const {
  const CharactersOf utf8(utf8_);
  const std::unique_ptr<char, decltype(&std::free)> line(readline_(prompt.c_str()), &std::free);
  if (line == nullptr) return std::nullopt;
  if (*line != '\0') add_history_(line.get());
  return line.get();
}

}  // namespace tessera::cli
