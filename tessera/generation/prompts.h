// Prompts: how they are read, and the token ids that they become.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::generation {

// A prompt: a text, or a conversation.
struct Prompt {
  std::string text;                 // the text; for a conversation its last message, for display
  nlohmann::ordered_json messages;  // an array, or null
  nlohmann::ordered_json tools;     // the tools given beside the messages, or null
  std::string place;                // "file:line"; empty on the command line
  // The other columns of the record, such as its id: an object, or null.
  nlohmann::ordered_json more;
  // Texts of the user that follow the answers, in their order: the later `turns` of a record.
  std::vector<std::string> later_turns;
  int64_t index = 0;         // among all prompts
  std::vector<int64_t> ids;  // tokens that are the prompt in the place of text and messages; empty = none
};

// Returns the prompt that follows an answer: the conversation so far, and the next of `later_turns`.
Prompt next_turn(Prompt prompt, const std::string& answer);

// Reads a file of records: {"prompt": "..."}, {"messages": [...]}, {"conversations": [{"from": ..., "value":
// ...}, ...]} (ShareGPT; answers behind the last question are left out) or {"turns": ["...", ...]}
// (MT-bench). Each may hold "tools" and other columns. The file is of JSON lines, or one array. "-" is
// standard input. Throws Error(Data) at the record.
std::vector<Prompt> read_prompt_file(const std::string& path);
// Reads every line of standard input that is not empty as a prompt.
std::vector<Prompt> read_prompt_lines();

// Reads the next line of standard input without its end; returns false behind the last line. Throws
// Error(Data) for a line that is longer than a record may be.
bool read_input_line(std::string& line);

// Makes the message {"role": role, "content": content}.
nlohmann::ordered_json message(const std::string& role, const std::string& content);

// How prompts become token ids. The tokenizer must outlive this object.
struct PromptEncoder {
  const text::Tokenizer& tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null if no prompt is a chat
  std::string system;    // the message before a chat that has no system message; empty = none
  bool is_chat = false;  // whether a text is a message of a user

  // Returns the ids of a text, or of a chat, followed by the header of the answer; or the prompt's own ids.
  std::vector<int64_t> encode(const Prompt& prompt) const;
};

}  // namespace tessera::generation
