// Finds the tool calls in the text of an answer, as it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/text/tool_calls/call_match.h"
#include "tessera/text/tool_calls/call_reading.h"
#include "tessera/text/tool_calls/harmony_stream.h"

namespace tessera::text {

// Text that may become a call is held back and everything else is given out at once. A call is given out when
// it is complete, so that a malformed one, or one that the end has cut off, can stay text, with its marks.
// Only white space beside calls, and their marks, are left out. The results do not depend on how the text is
// cut into pieces. Answers in channels are those of a HarmonyStream.
class ToolCallStream {
 public:
  explicit ToolCallStream(std::shared_ptr<const CallReading> reading);

  AnswerDelta add(const std::string& piece);
  // Returns what was held back; call it when the text has ended.
  AnswerDelta finish();
  bool has_calls() const { return num_calls_ > 0 || (channels_ && channels_->has_calls()); }
  // Returns whether no more calls, and so no more text, are wanted.
  bool has_enough() const { return reading_->only_one && reading_->named.empty() && has_calls(); }

 private:
  void read(bool is_end, AnswerDelta& out);
  // Begins to match where a call may begin in the held text, and gives out the text before; returns whether
  // there is such a place.
  bool begin_matches(AnswerDelta& out);
  // Goes on with them; returns whether that has come to a result.
  bool go_on(bool is_end, AnswerDelta& out);
  bool take(const CallMatch& match, AnswerDelta& out);
  void release(size_t size, AnswerDelta& out);

  const std::shared_ptr<const CallReading> reading_;
  std::optional<HarmonyStream> channels_;
  std::string held_;
  std::vector<CallMatch> matches_;  // those that are open
  size_t begin_ = 0;                // where they begin in the held text
  size_t reached_ = 0;              // how far those reached that have failed
  bool is_at_start_ = true;         // only white space and calls have come
  int64_t num_calls_ = 0;
};

}  // namespace tessera::text
