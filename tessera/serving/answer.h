// One answer of a request, as its tokens come from the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/serving/answer_fields.h"
#include "tessera/serving/engine.h"
#include "tessera/text/answer_text.h"

namespace tessera::serving {

// A token with its log-probability, as clients are told it.
struct ToldToken {
  std::string bytes;
  bool has_log_prob = true;  // the first token of a prompt has none
  double log_prob = 0.0;
  std::vector<std::pair<std::string, double>> top;
  int64_t offset = 0;  // characters of the text before it
};

class Answer;

// Is told of what happens to an answer.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void has_grown(Answer& answer) = 0;
  // `problem` is empty unless the answer was refused or has failed.
  virtual void has_ended(Answer& answer, const std::string& problem) = 0;
};

struct AnswerPlan {
  int64_t index = 0;            // among the choices of the request
  std::vector<int64_t> prompt;  // its tokens
  std::string echo;             // text that stands before the answer
  bool tells_prompt = false;    // log-probabilities of the prompt are told
  bool is_empty = false;        // only the prompt is wanted: the token that the engine makes is dropped
};

class Answer : public AnswerReceiver {
 public:
  Answer(AnswerPlan plan, const AnswerFields& fields, const text::Tokenizer& tokenizer,
         AnswerListener& listener);

  void of_prompt(const std::vector<scoring::TokenLogProbs>& log_probs) override;
  void log_probs(int64_t id, const scoring::TokenLogProbs& log_probs) override;
  bool token(int64_t id) override;
  void cached(int64_t tokens) override { cached_tokens_ = tokens; }
  void end(EndReason reason, const std::string& problem) override;

  int64_t index() const { return plan_.index; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t new_tokens() const { return new_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  // Why it has ended, "stop", "tool_calls" or "length"; "" before.
  const std::string& finish_reason() const { return finish_reason_; }
  bool is_cancelled() const { return is_cancelled_; }
  // Returns whether the request is at fault for the problem.
  bool is_refused() const { return is_refused_; }
  // Returns the stop text that ended it; "" if none did.
  const std::string& stopped_by() const { return text_.stopped_by(); }
  // Return the text, the reasoning, the parts of calls (at most one of each) and the tokens that have come
  // since the last time.
  std::string take_text() { return std::exchange(text_so_far_, {}); }
  std::string take_reasoning() { return std::exchange(reasoning_so_far_, {}); }
  std::vector<text::CallDelta> take_calls() { return std::exchange(calls_so_far_, {}); }
  std::vector<ToldToken> take_tokens() { return std::exchange(tokens_, {}); }
  bool has_news() const {
    return !text_so_far_.empty() || !reasoning_so_far_.empty() || !calls_so_far_.empty();
  }

 private:
  ToldToken told(int64_t id, const scoring::TokenLogProbs& log_probs);
  void grow(const std::string& text);
  void grow(text::AnswerDelta delta);

  AnswerPlan plan_;
  const text::Tokenizer& tokenizer_;
  AnswerListener& listener_;
  text::AnswerText text_;
  std::optional<text::ToolCallStream> call_stream_;
  std::string text_so_far_, reasoning_so_far_, finish_reason_;
  std::vector<text::CallDelta> calls_so_far_;
  std::vector<ToldToken> tokens_;
  int64_t prompt_tokens_ = 0, new_tokens_ = 0, cached_tokens_ = 0, offset_ = 0;
  bool is_cancelled_ = false, is_refused_ = false;
};

}  // namespace tessera::serving
