// Rows of a prompt and its completion, as TRL has them.
#pragma once

#include <memory>
#include <optional>

#include "tessera/core/error.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type prompt_completion: `prompt` and `completion` (field_prompt, field_completion) are texts, or lists of
// messages that the chat template writes. The completion is trained, up to its end token; the prompt is
// masked. Texts become tokens as one text, with the BOS that the tokenizer adds, and EOS.
class PromptCompletion : public PromptType {
 public:
  PromptCompletion(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  void tokenize_chat(const PromptRecord& record, std::vector<Row>& rows) const;
  Row tokenize_text(const PromptRecord& record) const;

  const text::Tokenizer& tokenizer_;
  std::string field_prompt_, field_completion_, field_messages_;
  bool train_on_inputs_, splits_border_;
  std::unique_ptr<ChatPrompt> chat_;  // null if the model has no chat template
  std::optional<Error> no_template_;  // why it is null
};

}  // namespace tessera::data
