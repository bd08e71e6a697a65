// Free segments of text, each trained or masked.
#pragma once

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type input_output: `segments` is a list of {label: bool, text: string}, which are tokenised apart and
// joined as they are. The user writes BOS and EOS into the text himself, so control tokens are recognised in
// it.
class InputOutputPrompt : public PromptType {
 public:
  InputOutputPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer& tokenizer_;
  bool train_on_inputs_;
};

}  // namespace tessera::data
