#include "tessera/cli/message_input.h"

#include <unistd.h>

#include "tessera/cli/answering.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/raw_record.h"
#include "tessera/generation/prompts.h"

namespace tessera::cli {

MessageInput::MessageInput() : is_typed_(isatty(STDIN_FILENO) == 1) {
  if (is_typed_ && isatty(STDOUT_FILENO) == 1) editor_.emplace();
}

std::optional<std::string> MessageInput::next_line(const std::string& prompt) const {
  if (editor_ && editor_->is_usable()) return editor_->next_line(prompt);
  if (is_typed_) show_text(prompt);
  std::string line;
  if (!generation::read_input_line(line)) return std::nullopt;
  return line;
}

std::optional<std::string> MessageInput::next() const {
  std::optional<std::string> message;
  while (const auto line = next_line(message ? "| " : "> ")) {
    message = message ? *message + '\n' + *line : *line;
    if (std::ssize(*message) > data::kMaxRecordBytes) {
      throw Error(ErrorKind::Data, "LINE-TOO-LONG", "the message is too long")
          .need("at most " + format_bytes(data::kMaxRecordBytes));
    }
    if (!message->ends_with('\\')) break;
    message->pop_back();
  }
  return message;
}

}  // namespace tessera::cli
