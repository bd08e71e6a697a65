// Conversations between a persona, a user and a bot.
#pragma once

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type pygmalion: {conversations: [{role: system, human or bot, value}]}. Each message becomes tokens by
// itself behind <|system|>, <|user|> or <|model|>; a bot's messages are trained, with an EOS. The BOS stands
// before a system message alone.
class PygmalionPrompt : public PromptType {
 public:
  explicit PygmalionPrompt(const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer& tokenizer_;
  size_t prefix_size_ = 0;  // tokens of <|model|>
};

}  // namespace tessera::data
