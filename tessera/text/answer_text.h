// The text of an answer, as its tokens come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/text/stop_strings.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// The text of one answer, up to a stop string. Neither the pieces of the tokens nor their cuts change it. The
// tokenizer must outlive this object.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
             bool skip_special_tokens = true)
      : text_(tokenizer, skip_special_tokens), stop_(stop_strings) {}

  // Returns the text that the token adds to the text that can be shown.
  std::string add(int64_t id) { return stop_.add(text_.add(static_cast<int32_t>(id))); }
  // Returns the text that was held back; call it when the last token has come.
  std::string finish() {
    std::string text = stop_.add(text_.finish());
    if (!stop_.has_stopped()) text += stop_.finish();
    return text;
  }
  bool has_stopped() const { return stop_.has_stopped(); }
  // Returns the stop string that ended the text; "" if none did.
  const std::string& stopped_by() const { return stop_.stopped_by(); }

 private:
  TextStream text_;
  StopStrings stop_;
};

}  // namespace tessera::text
