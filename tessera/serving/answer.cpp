#include "tessera/serving/answer.h"

#include <algorithm>
#include <cmath>

namespace tessera::serving {
namespace {

// This number stands for a log-probability of -infinity, which JSON does not have.
constexpr double kLowest = -9999.0;

double finite(double log_prob) { return std::isfinite(log_prob) ? log_prob : kLowest; }

// Counts the characters that begin in these bytes. Of a character that is split over tokens, the first
// counts.
int64_t count_characters(const std::string& bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::vector<std::string_view> marks_of(const AnswerFields& fields) {
  const bool has_marks = fields.calls != nullptr && fields.calls->format != nullptr;
  return has_marks ? fields.calls->format->marks() : std::vector<std::string_view>();
}

}  // namespace

Answer::Answer(AnswerPlan plan, const AnswerFields& fields, const text::Tokenizer& tokenizer,
               AnswerListener& listener)
    : plan_(std::move(plan)),
      tokenizer_(tokenizer),
      listener_(listener),
      text_(tokenizer, fields.stop, fields.skip_special_tokens, marks_of(fields)),
      text_so_far_(plan_.echo),
      prompt_tokens_(std::ssize(plan_.prompt)) {
  if (fields.calls != nullptr) call_stream_.emplace(fields.calls);
}

ToldToken Answer::told(int64_t id, const scoring::TokenLogProbs& log_probs) {
  const auto bytes = [&](int64_t of) { return tokenizer_.token_bytes(static_cast<int32_t>(of)); };
  ToldToken token{bytes(id), true, finite(log_probs.log_prob), {}, offset_};
  for (const scoring::TokenLogProb& top : log_probs.top)
    token.top.emplace_back(bytes(top.id), finite(top.log_prob));
  if (!tokenizer_.is_special(static_cast<int32_t>(id))) offset_ += count_characters(token.bytes);
  return token;
}

void Answer::of_prompt(const std::vector<scoring::TokenLogProbs>& log_probs) {
  if (!plan_.tells_prompt) return;
  for (size_t i = 0; i < plan_.prompt.size(); ++i) {
    tokens_.push_back(told(plan_.prompt[i], i == 0 ? scoring::TokenLogProbs() : log_probs.at(i - 1)));
    tokens_.back().has_log_prob = i > 0;
  }
}

void Answer::log_probs(int64_t id, const scoring::TokenLogProbs& log_probs) {
  if (!plan_.is_empty) tokens_.push_back(told(id, log_probs));
}

void Answer::grow(const std::string& text) {
  if (call_stream_) return grow(call_stream_->add(text));
  text_so_far_ += text;
}

void Answer::grow(text::AnswerDelta delta) {
  text_so_far_ += delta.text;
  reasoning_so_far_ += delta.reasoning;
  for (text::CallDelta& call : delta.calls) {
    if (!calls_so_far_.empty() && calls_so_far_.back().index == call.index) {
      calls_so_far_.back().arguments += call.arguments;
    } else {
      calls_so_far_.push_back(std::move(call));
    }
  }
}

bool Answer::token(int64_t id) {
  if (plan_.is_empty) return false;
  ++new_tokens_;
  grow(text_.add(id));
  listener_.has_grown(*this);
  return !text_.has_stopped() && !(call_stream_ && call_stream_->has_enough());
}

void Answer::end(EndReason reason, const std::string& problem) {
  // The id that ends an answer was generated too.
  const bool ended_itself = text_.has_stopped() || (call_stream_ && call_stream_->has_enough());
  if (reason == EndReason::Stop && !ended_itself && !plan_.is_empty) ++new_tokens_;
  if (!plan_.is_empty) grow(text_.finish());
  if (call_stream_) grow(call_stream_->finish());
  is_cancelled_ = reason == EndReason::Cancelled;
  is_refused_ = reason == EndReason::Refused;
  finish_reason_ = reason == EndReason::Length || plan_.is_empty ? "length"
                   : call_stream_ && call_stream_->has_calls()   ? "tool_calls"
                                                                 : "stop";
  listener_.has_ended(*this,
                      reason == EndReason::Failed && problem.empty() ? "the answer has failed" : problem);
}

}  // namespace tessera::serving
