// Whole documents, to be laid end to end.
#pragma once

#include <string>

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type pretrain in a stream: the text of `field`, or the ids of `input_ids` if there is no such field, all
// trained, in one row of any length. Any BOS or EOS that a document brings itself at its ends (as text or as
// ids) is taken off. It gets the tokenizer's BOS, if that is put before texts and is another token than EOS,
// and one EOS, so that exactly one separator stands between two documents. An empty document gives no row.
class DocumentPrompt : public PromptType {
 public:
  // Throws Error(Model) if the tokenizer has no EOS.
  DocumentPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  bool has_own_ends(const PromptRecord& record) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  std::vector<int32_t> own_ids(const PromptRecord& record) const;

  const text::Tokenizer& tokenizer_;
  std::string field_;
  int64_t vocab_size_;
  int32_t eos_;
  std::vector<int32_t> begin_;  // ids that are put before a document
};

}  // namespace tessera::data
