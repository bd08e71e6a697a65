// The prompts of `tessera generate`.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::cli {

// A text, or a conversation.
struct Prompt {
  std::string text;                 // of a conversation: its last message, for display
  nlohmann::ordered_json messages;  // an array, or null
  nlohmann::ordered_json tools;     // beside the messages, or null
  std::string place;                // "file:line"; empty on the command line
};

// The records of a file of JSON lines: {"prompt": "..."} or {"messages": [...]}, with "tools" or not. "-" is
// standard input. Throws Error(Data) at the line.
std::vector<Prompt> read_prompt_file(const std::string& path);
// Every line of standard input that is not empty.
std::vector<Prompt> read_prompt_lines();

// The next line of standard input without its end; false behind the last. Throws Error(Data) for one that is
// longer than a record may be.
bool read_input_line(std::string& line);

}  // namespace tessera::cli
