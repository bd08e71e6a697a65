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

}  // namespace

Answer::Answer(AnswerPlan plan, const AnswerFields& fields, const text::Tokenizer& tokenizer,
               AnswerListener& listener)
    : plan_(std::move(plan)),
      tokenizer_(tokenizer),
      listener_(listener),
      text_(tokenizer, fields.stop, fields.skip_special_tokens),
      text_so_far_(plan_.echo),
      prompt_tokens_(std::ssize(plan_.prompt)) {}

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

bool Answer::token(int64_t id) {
  if (plan_.is_empty) return false;
  ++new_tokens_;
  text_so_far_ += text_.add(id);
  listener_.has_grown(*this);
  return !text_.has_stopped();
}

void Answer::end(EndReason reason, const std::string& problem) {
  // The id that ends an answer was generated too.
  if (reason == EndReason::Stop && !text_.has_stopped() && !plan_.is_empty) ++new_tokens_;
  if (!plan_.is_empty) text_so_far_ += text_.finish();
  is_cancelled_ = reason == EndReason::Cancelled;
  finish_reason_ = reason == EndReason::Length || plan_.is_empty ? "length" : "stop";
  listener_.has_ended(*this,
                      reason == EndReason::Failed && problem.empty() ? "the answer has failed" : problem);
}

}  // namespace tessera::serving
