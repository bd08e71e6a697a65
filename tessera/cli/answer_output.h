// Where the answers of `tessera generate` go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/prompts.h"
#include "tessera/io/log_file.h"

namespace tessera::cli {

// The end of an answer.
struct AnswerEnd {
  std::string reason;  // "stop" or "length"
  int64_t prompt_tokens = 0, new_tokens = 0;
};

// Prints the answers one after the other in the order of their prompts: the first that is not finished as it
// grows, later ones when their turn comes. Or writes them to a file as JSON lines, each as a whole when it is
// finished.
class AnswerOutput {
 public:
  // Those of `prompts`, which outlives it: with several printed each answer stands under its own. `path`: of
  // a new file; empty: standard output. Throws Error(Storage) for a path that cannot be written,
  // Error(Config) for one that is taken.
  AnswerOutput(const std::vector<Prompt>& prompts, const std::string& path);

  // Both throw Error(Storage) for what cannot be written.
  void add(size_t index, const std::string& text);
  void finish(size_t index, const AnswerEnd& end);

 private:
  struct Answer {
    std::string pending;
    bool is_finished = false;
  };

  void write(size_t index, const AnswerEnd& end);
  void begin();
  void show();

  const std::vector<Prompt>& prompts_;
  std::vector<Answer> answers_;
  size_t current_ = 0;  // that is printed
  std::optional<io::LogFile> file_;
};

}  // namespace tessera::cli
