// The text of an answer, as its tokens come.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/stop_strings.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// The text of one answer, up to a stop string. Neither the pieces of the tokens nor their cuts change it. The
// tokenizer must outlive this object.
class AnswerText {
 public:
  // Special tokens of the names `kept` are never skipped.
  AnswerText(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
             bool skip_special_tokens = true, const std::vector<std::string_view>& kept = {})
      : tokenizer_(tokenizer), skips_special_(skip_special_tokens), text_(tokenizer), stop_(stop_strings) {
    for (const std::string_view token : kept) {
      if (const auto id = tokenizer.token_to_id(token)) kept_.insert(*id);
    }
  }

  // Returns the text that the token adds to the text that can be shown.
  std::string add(int64_t id) {
    const auto token = static_cast<int32_t>(id);
    if (skips_special_ && tokenizer_.is_special(token) && !kept_.contains(token)) return {};
    return stop_.add(text_.add(token));
  }
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
  const Tokenizer& tokenizer_;
  const bool skips_special_;
  std::set<int32_t> kept_;
  TextStream text_;
  StopStrings stop_;
};

}  // namespace tessera::text
