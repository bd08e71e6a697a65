// Answers in steps, each of which is right or wrong.
#pragma once

#include <string>

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type stepwise_supervised: {prompt, completions, labels}. Its rows are for `tessera data show`: the prompt
// behind the BOS, then every step with step_separator, whose last token is marked: there a reward model would
// judge the step. No objective trains on them yet.
class StepwisePrompt : public PromptType {
 public:
  StepwisePrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<int32_t> separator_;
};

}  // namespace tessera::data
