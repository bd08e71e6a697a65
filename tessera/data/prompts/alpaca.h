// Instruction, input and output in the text of Stanford Alpaca.
#pragma once

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Types alpaca, alpaca_chat (USER/ASSISTANT turns) and alpaca_w_system (with a system column). A row is the
// prompt (with BOS where the tokenizer adds one) and the output with EOS, tokenised apart, so that no token
// spans both. The prompt is masked unless train_on_inputs. The record's text never makes control tokens.
class AlpacaPrompt : public PromptType {
 public:
  AlpacaPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  std::string prompt_text(const nlohmann::ordered_json& record) const;

  const config::DatasetConfig& dataset_;
  const text::Tokenizer& tokenizer_;
  bool train_on_inputs_;
};

}  // namespace tessera::data
