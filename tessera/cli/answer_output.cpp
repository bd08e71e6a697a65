#include "tessera/cli/answer_output.h"

#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/core/error.h"

namespace tessera::cli {

AnswerOutput::AnswerOutput(const std::vector<generation::Prompt>& prompts, const std::string& path)
    : prompts_(prompts), answers_(prompts.size()) {
  if (path.empty()) {
    begin();
    return;
  }
  file_.emplace(path);
}

void AnswerOutput::add(size_t index, const std::string& text) {
  answers_[index].pending += text;
  if (!file_ && index == current_) show();
}

void AnswerOutput::finish(size_t index, const generation::AnswerEnd& end) {
  if (file_) return write(index, end);
  answers_[index].is_finished = true;
  while (current_ < answers_.size() && answers_[current_].is_finished) {
    show_text(answers_[current_].pending + "\n");
    answers_[current_] = {};
    ++current_;
    begin();
  }
}

void AnswerOutput::write(size_t index, const generation::AnswerEnd& end) {
  const generation::Prompt& prompt = prompts_[index];
  nlohmann::ordered_json line = {{"index", index}};
  if (prompt.messages.is_null()) {
    line["prompt"] = prompt.text;
  } else {
    line["messages"] = prompt.messages;
  }
  line["text"] = answers_[index].pending;
  line["finish_reason"] = end.reason;
  line["prompt_tokens"] = end.prompt_tokens;
  line["completion_tokens"] = end.new_tokens;
  answers_[index] = {};
  if (file_->append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"))
    return;
  throw Error(ErrorKind::Storage, "WRITE", "an answer cannot be written")
      .in(file_->path())
      .hint("the answers before it are in the file");
}

void AnswerOutput::begin() {
  if (current_ >= answers_.size()) return;
  if (prompts_.size() > 1) show_text("> " + prompts_[current_].text + "\n");
  show();
}

void AnswerOutput::show() {
  std::string& pending = answers_[current_].pending;
  if (!pending.empty()) show_text(pending);
  pending.clear();
}

}  // namespace tessera::cli
