#include "tessera/text/tool_calls/call_match.h"

#include <algorithm>
#include <cctype>

#include "tessera/text/tool_calls/read_calls.h"

namespace tessera::text {
namespace {

using State = CallMatch::State;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == ':' ||
         c == '/';
}

}  // namespace

State CallMatch::advance(std::string_view text, bool is_end) {
  while (state_ == State::Open && part_ < shape_->parts.size()) {
    const State state = match(shape_->parts[part_], text, is_end);
    if (state == State::Open) return state;
    if (state == State::Failed) state_ = state;
    if (state == State::Complete) ++part_;
    seen_ = at_;
  }
  if (state_ == State::Open) state_ = State::Complete;
  return state_;
}

State CallMatch::match(const CallPart& part, std::string_view text, bool is_end) {
  switch (part.kind) {
    case CallPart::Kind::Mark: return match_mark(part.text, text, is_end, true);
    case CallPart::Kind::Maybe: return match_mark(part.text, text, is_end, false);
    case CallPart::Kind::Name: return match_name(text, is_end);
    case CallPart::Kind::Value: return match_value(part.text, text, is_end);
    case CallPart::Kind::Until: return match_until(part.text, text, is_end);
    case CallPart::Kind::Space: break;
  }
  while (at_ < text.size() && is_space(text[at_])) ++at_;
  return at_ < text.size() || is_end ? State::Complete : State::Open;
}

State CallMatch::match_mark(std::string_view mark, std::string_view text, bool is_end, bool is_needed) {
  const std::string_view rest = text.substr(at_);
  if (rest.starts_with(mark)) {
    at_ += mark.size();
    return State::Complete;
  }
  if (!is_end && mark.starts_with(rest)) return State::Open;
  return is_needed ? State::Failed : State::Complete;
}

State CallMatch::match_name(std::string_view text, bool is_end) {
  seen_ = std::max(seen_, at_);
  while (seen_ < text.size() && is_of_name(text[seen_])) ++seen_;
  if (seen_ == text.size() && !is_end) return State::Open;
  if (seen_ == at_) return State::Failed;
  // A second name is an id.
  if (name_.empty()) name_ = text.substr(at_, seen_ - at_);
  at_ = seen_;
  return State::Complete;
}

State CallMatch::match_value(std::string_view brackets, std::string_view text, bool is_end) {
  if (at_ == text.size()) return is_end ? State::Failed : State::Open;
  if (brackets.find(text[at_]) == std::string_view::npos) return State::Failed;
  const bool is_python = shape_->body == CallBody::Python;
  for (; seen_ < text.size(); ++seen_) {
    const char c = text[seen_];
    if (quote_ == '\\') {
      quote_ = escaped_in_;
    } else if (quote_ != '\0') {
      if (c == '\\') escaped_in_ = quote_;
      if (c == '\\' || c == quote_) quote_ = c == '\\' ? '\\' : '\0';
    } else if (c == '"' || (is_python && c == '\'')) {
      quote_ = c;
    } else if (c == '[' || c == '{' || c == '(') {
      if (++depth_ > kDeepestCall) break;
    } else if (c == ']' || c == '}' || c == ')') {
      if (--depth_ > 0) continue;
      ++seen_;
      value_ = text.substr(at_, seen_ - at_);
      at_ = seen_;
      return State::Complete;
    }
  }
  if (seen_ == text.size() && !is_end) return State::Open;
  at_ = seen_;
  return State::Failed;
}

State CallMatch::match_until(std::string_view mark, std::string_view text, bool is_end) {
  const size_t found = text.find(mark, std::max(seen_, at_));
  if (found == std::string_view::npos) {
    // The mark may be cut.
    seen_ = std::max(at_, text.size() - std::min(text.size(), mark.size() - 1));
    if (!is_end) return State::Open;
    at_ = text.size();
    return State::Failed;
  }
  value_ = text.substr(at_, found - at_);
  at_ = found + mark.size();
  return State::Complete;
}

}  // namespace tessera::text
