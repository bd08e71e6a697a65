// Rows that hold token ids.
#pragma once

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Reads the columns input_ids, labels (the ids, or -100 where nothing is trained) and, if there is padding,
// attention_mask (0 = padding, which is left out). Nothing is added.
class PretokenizedPrompt : public PromptType {
 public:
  PretokenizedPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer* tokenizer_;
  int64_t vocab_size_;
};

}  // namespace tessera::data
