// Plain text, all of it trained.
#pragma once

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type completion: the text of `field`, with BOS if the tokenizer adds one and EOS at the end of the
// document, cut into rows of sequence_len tokens.
class CompletionPrompt : public PromptType {
 public:
  CompletionPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  bool has_own_ends(const PromptRecord& record) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer& tokenizer_;
  std::string field_;
  int64_t sequence_len_;
};

}  // namespace tessera::data
