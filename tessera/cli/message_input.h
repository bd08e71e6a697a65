// Messages that standard input brings, typed by someone or through a pipe.
#pragma once

#include <optional>
#include <string>

#include "tessera/cli/line_editor.h"

namespace tessera::cli {

class MessageInput {
 public:
  // At a terminal, looks for a line editor.
  MessageInput();

  // Tells whether someone types the messages.
  bool is_typed() const { return is_typed_; }
  // Tells whether a line editor would be of use, and this machine has none.
  bool misses_editor() const { return editor_ && !editor_->is_usable(); }
  // Returns the next line; one that ends in a backslash goes on on the next line. Shows a prompt if the
  // messages are typed. nullopt is the end of the input. Throws Error(Data) for a message that is longer than
  // a record may be.
  std::optional<std::string> next() const;

 private:
  std::optional<std::string> next_line(const std::string& prompt) const;

  const bool is_typed_;
  std::optional<LineEditor> editor_;  // only where both standard input and output are terminals
};

}  // namespace tessera::cli
