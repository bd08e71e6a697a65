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
  // Takes the answers to `prompts`, which must outlive this object. If several are printed, each stands under
  // its prompt. `path` names a file, which is emptied; "" means standard output. Throws Error(Storage) for a
  // path that cannot be written.
  AnswerOutput(const std::vector<generation::Prompt>& prompts, const std::string& path);

  // Both throw Error(Storage) if writing fails.
  void add(size_t index, const std::string& text) override;
  void finish(size_t index, const generation::AnswerEnd& end) override;

 private:
  struct Answer {
    std::string pending;
    bool is_finished = false;
  };

  void write(size_t index, const generation::AnswerEnd& end);
  void begin();
  void show();

  const std::vector<generation::Prompt>& prompts_;
  std::vector<Answer> answers_;
  size_t current_ = 0;  // index of the answer that is printed as it grows
  std::optional<io::LogFile> file_;
};

}  // namespace tessera::cli
