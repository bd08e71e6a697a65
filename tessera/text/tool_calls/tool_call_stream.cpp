#include "tessera/text/tool_calls/tool_call_stream.h"

#include <algorithm>
#include <utility>

#include "tessera/text/tool_calls/find_mark.h"

namespace tessera::text {
namespace {

constexpr const char* kSpaces = " \t\r\n";

}  // namespace

ToolCallStream::ToolCallStream(std::shared_ptr<const CallReading> reading) : reading_(std::move(reading)) {
  if (reading_->named.empty() && reading_->format->has_channels) channels_.emplace(*reading_);
}

AnswerDelta ToolCallStream::add(const std::string& piece) {
  if (channels_) return channels_->add(piece);
  AnswerDelta out;
  if (!reading_->named.empty()) {
    if (piece.empty()) return out;
    out.calls.push_back({0, num_calls_ == 0 ? reading_->named : "", piece});
    num_calls_ = 1;
    return out;
  }
  held_ += piece;
  read(/*is_end=*/false, out);
  return out;
}

AnswerDelta ToolCallStream::finish() {
  if (channels_) return channels_->finish();
  AnswerDelta out;
  if (!reading_->named.empty()) return out;
  read(/*is_end=*/true, out);
  // White space is left; behind a call it is dropped.
  if (!is_at_start_ || num_calls_ == 0) out.text += held_;
  held_.clear();
  return out;
}

void ToolCallStream::read(bool is_end, AnswerDelta& out) {
  while (!has_enough() && (!matches_.empty() || begin_matches(out))) {
    if (!go_on(is_end, out)) return;
  }
  if (has_enough()) held_.clear();
  // White space is held back, since a call may follow.
  const size_t last = held_.find_last_not_of(kSpaces);
  if (last != std::string::npos) release(last + 1, out);
}

bool ToolCallStream::begin_matches(AnswerDelta& out) {
  size_t first = held_.size();
  const size_t start = std::min(held_.find_first_not_of(kSpaces), held_.size());
  for (const CallShape& shape : reading_->format->shapes) {
    const auto marks = shape.first_marks();
    for (const std::string_view mark : marks) first = std::min(first, find_mark(held_, mark, 0));
    if (marks.empty() && is_at_start_) first = std::min(first, start);
  }
  if (first == held_.size()) return false;
  const bool may_be_bare = is_at_start_ && first == start;
  const size_t before = held_.find_last_not_of(kSpaces, first - 1);
  if (first > 0 && before != std::string::npos) {
    release(before + 1, out);
    first -= before + 1;
  }
  begin_ = reached_ = first;
  for (const CallShape& shape : reading_->format->shapes) {
    if (!shape.first_marks().empty() || may_be_bare) matches_.emplace_back(shape);
  }
  return true;
}

bool ToolCallStream::go_on(bool is_end, AnswerDelta& out) {
  const std::string_view text = std::string_view(held_).substr(begin_);
  for (auto match = matches_.begin(); match != matches_.end();) {
    const CallMatch::State state = match->advance(text, is_end);
    if (state == CallMatch::State::Complete && take(*match, out)) {
      matches_.clear();
      return true;
    }
    if (state == CallMatch::State::Open) {
      ++match;
    } else {
      reached_ = std::max(reached_, begin_ + match->size());
      match = matches_.erase(match);
    }
  }
  if (!matches_.empty()) return false;
  // None matches: all that they looked at is text.
  release(std::max(reached_, begin_ + 1), out);
  return true;
}

bool ToolCallStream::take(const CallMatch& match, AnswerDelta& out) {
  const auto calls = read_calls(match.shape(), match.name(), match.value(), reading_->tools);
  if (!calls) return false;
  const bool is_bare = match.shape().first_marks().empty();
  if (is_bare &&
      !std::ranges::all_of(*calls, [&](const ToolCall& call) { return reading_->tools.contains(call.name); }))
    return false;
  for (const ToolCall& call : *calls) {
    if (!has_enough()) out.calls.push_back({num_calls_++, call.name, call.arguments});
  }
  // White space before the call goes with it.
  held_.erase(0, begin_ + match.size());
  is_at_start_ = true;
  return true;
}

void ToolCallStream::release(size_t size, AnswerDelta& out) {
  if (size == 0) return;
  // White space behind a call is left out.
  const size_t from = is_at_start_ && num_calls_ > 0 ? std::min(held_.find_first_not_of(kSpaces), size) : 0;
  out.text += held_.substr(from, size - from);
  held_.erase(0, size);
  is_at_start_ = false;
}

}  // namespace tessera::text
