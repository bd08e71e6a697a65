// Cuts plain text into windows that overlap.
#pragma once

#include <string>

#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Type pretrain without a stream: windows of sequence_len tokens, all trained, each with the tokenizer's BOS
// before it and an EOS behind it. Two neighbours have min(256, (sequence_len - 1) / 2) tokens in common.
class PretrainPrompt : public PromptType {
 public:
  PretrainPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  bool has_own_ends(const PromptRecord& record) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  const text::Tokenizer& tokenizer_;
  std::string field_;
  std::vector<int32_t> begin_;  // ids that the post-processor puts before a text
  int64_t window_, stride_;
};

}  // namespace tessera::data
