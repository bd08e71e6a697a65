#include "tessera/text/tool_calls/harmony_stream.h"

#include <algorithm>
#include <utility>

#include "tessera/text/tool_calls/find_mark.h"

namespace tessera::text {
namespace {

constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>", kTo = "to=";
constexpr std::string_view kHeads[] = {"<|start|>", kChannel, kTo};          // begin a head
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>"};  // end a message
constexpr size_t kMostHead = 256;                                            // a longer one is text

// Returns the word behind `mark`, up to a space or the next mark.
std::string_view word_behind(std::string_view head, std::string_view mark) {
  const size_t found = head.find(mark);
  if (found == std::string_view::npos) return "";
  head.remove_prefix(found + mark.size());
  return head.substr(0, head.find_first_of(" \t\r\n<"));
}

}  // namespace

AnswerDelta HarmonyStream::add(const std::string& piece) {
  AnswerDelta out;
  held_ += piece;
  read(/*is_end=*/false, out);
  return out;
}

AnswerDelta HarmonyStream::finish() {
  AnswerDelta out;
  read(/*is_end=*/true, out);
  return out;
}

void HarmonyStream::read(bool is_end, AnswerDelta& out) {
  const auto has_enough = [this] { return reading_->only_one && has_calls(); };
  while (!has_enough() && (part_ == Part::Head ? read_head(is_end, out) : read_body(is_end, out))) {
  }
  if (has_enough()) held_.clear();
}

void HarmonyStream::begin(Part part) {
  part_ = part;
  is_first_ = true;
}

bool HarmonyStream::read_head(bool is_end, AnswerDelta& out) {
  const size_t start = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
  const std::string_view rest = std::string_view(held_).substr(start);
  if (held_.empty() || (rest.empty() && (!is_end || has_text_ || has_reasoning_ || has_calls())))
    return false;
  const bool is_head =
      std::ranges::any_of(kHeads, [&](std::string_view mark) { return rest.starts_with(mark); });
  const bool may_be_head =
      !is_end && std::ranges::any_of(kHeads, [&](std::string_view mark) { return mark.starts_with(rest); });
  if (!is_head) {
    if (!may_be_head) begin(Part::Text);
    return !may_be_head;
  }
  const size_t end = held_.find(kMessage);
  if (end > kMostHead) {
    if (!is_end && held_.size() < kMostHead + kMessage.size()) return false;
    // It is no head. Without its first character it does not look like one.
    begin(Part::Text);
    release(start + 1, out);
    return true;
  }
  constexpr std::string_view kFunctions = "functions.";
  head_ = held_.substr(0, end + kMessage.size());
  const std::string_view recipient = word_behind(head_, kTo);
  const bool is_call = recipient.starts_with(kFunctions) && !reading_->tools.empty();
  if (is_call) name_ = recipient.substr(kFunctions.size());
  begin(is_call ? Part::Call : word_behind(head_, kChannel) == "analysis" ? Part::Reasoning : Part::Text);
  held_.erase(0, head_.size());
  return true;
}

bool HarmonyStream::read_body(bool is_end, AnswerDelta& out) {
  size_t size = held_.size();
  for (const std::string_view mark : kEnds) size = std::min(size, find_mark(held_, mark, 0));
  for (const std::string_view mark : {kHeads[0], kHeads[1]}) size = std::min(size, find_mark(held_, mark, 0));
  const std::string_view rest = std::string_view(held_).substr(size);
  const auto stands = [&](std::string_view mark) { return rest.starts_with(mark); };
  const auto* const ended = std::ranges::find_if(kEnds, stands);
  const std::string_view mark = ended != std::end(kEnds) ? *ended : "";
  const bool is_whole = !mark.empty() || std::ranges::any_of(kHeads, stands);
  if (!is_whole && is_end) size = held_.size();
  if (part_ != Part::Call) {
    release(size, out);
  } else if (is_whole || is_end) {
    take_call(size, mark, out);
  }
  if (!is_whole) return false;
  held_.erase(0, mark.size());
  part_ = Part::Head;
  return true;
}

void HarmonyStream::release(size_t size, AnswerDelta& out) {
  if (size == 0) return;
  const bool is_reasoning = part_ == Part::Reasoning;
  std::string& told = is_reasoning ? out.reasoning : out.text;
  bool& has_some = is_reasoning ? has_reasoning_ : has_text_;
  if (std::exchange(is_first_, false) && std::exchange(has_some, true)) told += '\n';
  told.append(held_, 0, size);
  held_.erase(0, size);
}

void HarmonyStream::take_call(size_t size, std::string_view mark, AnswerDelta& out) {
  static const CallShape shape{{}, CallBody::Arguments};
  const std::string_view body = std::string_view(held_).substr(0, size);
  if (const auto calls = read_calls(shape, name_, body, reading_->tools)) {
    for (const ToolCall& call : *calls) out.calls.push_back({num_calls_++, call.name, call.arguments});
    held_.erase(0, size);
    return;
  }
  held_.insert(0, head_);
  // A copy of the mark goes out with it, since the caller takes one off.
  held_.insert(head_.size() + size, mark);
  part_ = Part::Text;
  release(head_.size() + size + mark.size(), out);
}

}  // namespace tessera::text
