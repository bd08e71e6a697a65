// The forms of a prompt: plain text, or a conversation in the model's chat template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/text/chat_template/chat_template.h"

namespace tessera::scoring {

// A part of a prompt; `delimiter` follows it in plain text.
struct PromptPart {
  std::string role;  // "system", "user" or "assistant"
  std::string text, delimiter;
};

struct PromptForm {
  // Stands before the description of every task.
  std::string system_instruction;
  // Renders prompts as conversations; null for plain text.
  std::shared_ptr<const text::ChatTemplate> chat_template;
  text::RenderOptions options;  // of the template
  // Examples are turns of the conversation; else all text up to the answer is one message of the user.
  bool is_multiturn = true;

  bool is_chat() const { return chat_template != nullptr; }
  // Returns the text of a prompt. In a conversation the answer begins after the last part, or goes on with it
  // where that is the assistant's. If the template takes no system message, it is left out, with one warning.
  // Throws what ChatTemplate::render() throws.
  std::string render(const std::vector<PromptPart>& parts) const;
};

}  // namespace tessera::scoring
