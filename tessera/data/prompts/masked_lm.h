// Plain texts for a masked language model.
#pragma once

#include <optional>
#include <string>

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// The facts that the rows of a masked language model depend on, beside the tokenizer.
struct MaskedRows {
  bool whole_words = false;                 // a label run is a word, and not all tokens of a text
  std::optional<int64_t> most_tokens = {};  // the longest row that the model takes
};

// Records of task: masked_lm: the text of `field`, cut into pieces that fill sequence_len, or the model,
// together with the special tokens that the post-processor puts around each of them. Labels mark all but
// these tokens.
//
// A word is what stands without white space between, as in Transformers' DataCollatorForLanguageModeling.
class MaskedLmPrompt : public PromptType {
 public:
  MaskedLmPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  // Throws Error(Config, "SEQUENCE-LEN") if a row has room for special tokens alone.
  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override { return {}; }

 private:
  const text::Tokenizer& tokenizer_;
  const std::string field_;
  const MaskedRows& rows_;
  int64_t most_tokens_;
};

}  // namespace tessera::data
