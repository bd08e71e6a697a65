// The fields of a request that say how answers are made, which completions and chats share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/serving/fields.h"
#include "tessera/serving/served_model.h"
#include "tessera/text/tool_calls/tool_call_stream.h"

namespace tessera::serving {

inline constexpr int64_t kMostChoices = 128;  // answers to one prompt
inline constexpr int64_t kMostLogProbs = 20;

struct AnswerFields {
  Sampling sampling;
  std::optional<int64_t> max_tokens;
  int64_t n = 1;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_ids;
  std::string cache_salt;
  std::shared_ptr<text::Constraint> constraint;    // null if answers may be anything
  std::shared_ptr<const text::CallReading> calls;  // how calls are read; null if they are text
  bool skip_special_tokens = true;
  bool streams = false, includes_usage = false;
  bool wants_log_probs = false;
  int64_t num_top = 0;
};

// Reads all of them but the log-probabilities and max_tokens, which the two protocols write differently.
// Refuses every field that would change the answer and is not supported. Throws ApiError.
AnswerFields read_answer_fields(Fields& fields, const ServedModel& model, const EngineFacts& facts);

// Settles how many tokens an answer to a prompt of this size may have: what was asked for, or `otherwise`,
// but no more than context and cache leave. Throws ApiError if not even one is left.
int64_t answer_room(int64_t prompt_tokens, std::optional<int64_t> asked, int64_t otherwise,
                    const EngineFacts& facts, const std::string& param);

}  // namespace tessera::serving
