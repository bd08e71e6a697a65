// Pairs of a better and a worse text, for a reward model.
#pragma once

#include <memory>
#include <vector>

#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/preference.h"

namespace tessera::data {

// Records of task: reward_model. Without a type, the columns `chosen` and `rejected` hold two texts, behind
// that of `prompt` if there is one, or two lists of messages, which the chat template writes; with
// bradley_terry.chat_template they are answers to `input`, behind `system`; the other types of preferences
// are those of rl: dpo. `margin` may say how much better the first is.
//
// A pair is one row: the better text, then the other one, of which the type ids are 1. The position that the
// classifier reads is labelled in both, and both targets are the margin.
class RewardPrompt : public PromptType {
 public:
  RewardPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override { return {}; }

 private:
  struct Pair {
    std::vector<int32_t> chosen, rejected;
  };
  Pair read(const PromptRecord& record) const;
  std::vector<int32_t> encode_text(const std::string& text) const;
  // Writes the messages of `column` behind those of `before`.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& record, const nlohmann::ordered_json& before,
                                   const std::string& column) const;

  const text::Tokenizer& tokenizer_;
  const config::DatasetConfig dataset_;
  const ClassificationRows& rows_;
  ConversationReader reader_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;  // null if there is none
  std::unique_ptr<const PreferencePrompt> preferences_;      // set for its types
};

}  // namespace tessera::data
