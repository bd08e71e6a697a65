// Sources and targets, for an encoder-decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/data/prompts/conversation.h"
#include "tessera/data/prompts/instruct.h"
#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// The facts that the rows of an encoder-decoder depend on, beside the tokenizer.
struct Seq2SeqRows {
  int32_t decoder_start_token_id = 0;
};

// Records of task: seq2seq. A row is the source's tokens, of type 0, then the start token and the target's
// tokens, of type 1; the target's tokens are trained. Source and target become tokens apart, each with the
// ends that the tokenizer's post-processor gives a text, such as T5's </s>; control tokens are recognised in
// both, as T5's own tokenizer does.
//
// By the entry's type the source and the target are: two columns, if there is no type (`field_input` and
// `field_target`, else the first pair of common names that the record has); what an instruction type or
// user_defined makes of prompt and answer; prompt and completion; or, of a conversation, the contents before
// its last answer, joined by line breaks, and that answer.
//
// A row that is longer than sequence_len loses, with excess_length_strategy: truncate, the last tokens of its
// source, but its end; where that is not enough, then those of its target, too.
class Seq2SeqPrompt : public PromptType {
 public:
  // Throws Error(Config) at the entry for a type that has no source and target.
  Seq2SeqPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  struct Texts {
    std::string source, target;
  };
  Texts read(const nlohmann::ordered_json& record) const;
  Texts read_conversation(const nlohmann::ordered_json& record) const;

  const text::Tokenizer& tokenizer_;
  const config::DatasetConfig dataset_;
  const Seq2SeqRows& rows_;
  std::optional<int64_t> most_tokens_;
  std::unique_ptr<InstructPrompt> instruct_;          // null for other types
  std::unique_ptr<ConversationReader> conversation_;  // null for other types
};

}  // namespace tessera::data
