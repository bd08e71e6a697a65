// Reads the prompts of `tessera generate`.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::cli {

// A prompt: a text, or a conversation.
struct Prompt {
  std::string text;                 // the text; for a conversation its last message, for display
  nlohmann::ordered_json messages;  // an array, or null
  nlohmann::ordered_json tools;     // the tools given beside the messages, or null
  std::string place;                // "file:line"; empty on the command line
};

// Reads a file of JSON lines, {"prompt": "..."} or {"messages": [...]}, each with or without "tools". "-" is
// standard input. Throws Error(Data) at the line.
std::vector<Prompt> read_prompt_file(const std::string& path);
// Reads every line of standard input that is not empty as a prompt.
std::vector<Prompt> read_prompt_lines();

// Reads the next line of standard input without its end; returns false behind the last line. Throws
// Error(Data) for a line that is longer than a record may be.
bool read_input_line(std::string& line);

}  // namespace tessera::cli
