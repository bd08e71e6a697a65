// Takes apart the answers of gpt-oss, which consist of messages in channels:
//
//   <|channel|>analysis<|message|>Thoughts.<|end|><|start|>assistant<|channel|>final<|message|>Text.<|return|>
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": 1}<|call|>
//
// The recipient (to=) may also stand before the channel, as in the model's own template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/text/tool_calls/call_reading.h"

namespace tessera::text {

// The channel `analysis` is reasoning, a message to functions.NAME is a call, and all else is text, with a
// new line between two messages. Text without the marks of a message stays as it is. A call is given out when
// it is complete; one that is no JSON object stays text, with its marks, and so does every one if the request
// has no tools. The results do not depend on how the text is cut into pieces.
class HarmonyStream {
 public:
  // The reading must outlive this object.
  explicit HarmonyStream(const CallReading& reading) : reading_(&reading) {}

  AnswerDelta add(const std::string& piece);
  // Returns what was held back; call it when the text has ended.
  AnswerDelta finish();
  bool has_calls() const { return num_calls_ > 0; }

 private:
  enum class Part { Head, Text, Reasoning, Call };

  void read(bool is_end, AnswerDelta& out);
  // Each of these goes on with the part that is open, and returns whether it has come to its end.
  bool read_head(bool is_end, AnswerDelta& out);
  bool read_body(bool is_end, AnswerDelta& out);
  void begin(Part part);
  // Gives out the first bytes of the held text.
  void release(size_t size, AnswerDelta& out);
  void take_call(size_t size, std::string_view mark, AnswerDelta& out);

  const CallReading* reading_;
  std::string held_;
  Part part_ = Part::Head;
  std::string head_, name_;  // of a call: the text of its head, and the function
  bool is_first_ = true;     // nothing of the body has been given out
  bool has_text_ = false, has_reasoning_ = false;
  int64_t num_calls_ = 0;
};

}  // namespace tessera::text
