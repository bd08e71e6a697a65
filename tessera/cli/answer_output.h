// Writes the answers of `tessera generate` to the terminal or a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/generation/answers.h"
#include "tessera/io/log_file.h"

namespace tessera::cli {

// Prints the answers in the order of their prompts: the first that is not finished as it grows, later ones
// when their turn comes. With a path, writes them to a file as JSON lines instead, each when it is finished.
class AnswerOutput : public generation::AnswerSink {
 public:
  // `path` names a file, which is emptied; "" means standard output. Throws Error(Storage) for a path that
  // cannot be written.
  explicit AnswerOutput(const std::string& path);
  // Takes the answers to these prompts from now on. If several are printed, each stands under its prompt.
  void ask(std::vector<generation::Prompt> prompts);
  // Returns the prompts that follow the answers (Prompt::later_turns). Call it when all answers are finished.
  std::vector<generation::Prompt> next_turns() const;

  // Both throw Error(Storage) if writing fails.
  void add(size_t index, const std::string& text) override;
  void finish(size_t index, const generation::AnswerEnd& end) override;

 private:
  struct Answer {
    std::string pending, whole;  // what is not printed yet, and all of it
    bool is_finished = false;
  };

  void write(size_t index, const generation::AnswerEnd& end);
  void begin();
  void show();

  std::vector<generation::Prompt> prompts_;
  std::vector<Answer> answers_;
  size_t current_ = 0;  // index of the answer that is printed as it grows
  std::optional<io::LogFile> file_;
};

}  // namespace tessera::cli
