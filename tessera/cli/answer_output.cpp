#include "tessera/cli/answer_output.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/core/error.h"

namespace tessera::cli {

AnswerOutput::AnswerOutput(const std::string& path) {
  if (!path.empty()) file_.emplace(path);
}

void AnswerOutput::ask(std::vector<generation::Prompt> prompts) {
  prompts_ = std::move(prompts);
  answers_.assign(prompts_.size(), {});
  current_ = 0;
  if (!file_) begin();
}

std::vector<generation::Prompt> AnswerOutput::next_turns() const {
  std::vector<generation::Prompt> next;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    if (!prompts_[i].later_turns.empty())
      next.push_back(generation::next_turn(prompts_[i], answers_[i].whole));
  }
  return next;
}

void AnswerOutput::add(size_t index, const std::string& text) {
  answers_[index].pending += text;
  if (!prompts_[index].later_turns.empty()) answers_[index].whole += text;
  if (!file_ && index == current_) show();
}

void AnswerOutput::finish(size_t index, const generation::AnswerEnd& end) {
  if (file_) return write(index, end);
  answers_[index].is_finished = true;
  while (current_ < answers_.size() && answers_[current_].is_finished) {
    show_text(answers_[current_].pending + "\n");
    answers_[current_].pending.clear();
    ++current_;
    begin();
  }
}

void AnswerOutput::write(size_t index, const generation::AnswerEnd& end) {
  const generation::Prompt& prompt = prompts_[index];
  nlohmann::ordered_json line = {{"index", prompt.index}};
  if (prompt.messages.is_null()) {
    line["prompt"] = prompt.text;
  } else {
    line["messages"] = prompt.messages;
  }
  line["text"] = answers_[index].pending;
  line["finish_reason"] = end.reason;
  line["prompt_tokens"] = end.prompt_tokens;
  line["completion_tokens"] = end.new_tokens;
  // A column of the record never takes the place of one of these.
  for (const auto& item : prompt.more.items()) {
    if (!line.contains(item.key())) line[item.key()] = item.value();
  }
  answers_[index].pending.clear();
  if (file_->append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"))
    return;
  throw Error(ErrorKind::Storage, "WRITE", "cannot write an answer")
      .in(file_->path())
      .hint("the file contains the answers before it");
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
