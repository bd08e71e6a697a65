// Rows of preferences: two answers to one prompt, or one answer that is liked or not.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/data/prompts/conversation.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/prompts/text_format.h"

namespace tessera::data {

// The texts of one record. Pairs have two answers; with rl: kto there is one answer, and `label` tells
// whether it is liked.
struct Preference {
  MarkedText prompt;
  std::vector<std::string> answers;
  bool label = true;
};

bool is_preference_type(std::string_view type);
std::vector<std::string> preference_type_names();

// Reads and checks the records of rl: dpo, ipo, orpo, simpo and kto. The rows that it makes are for `tessera
// data show`, since no objective trains on them yet: for each answer the prompt and the answer, of which the
// answer is trained.
class PreferencePrompt : public PromptType {
 public:
  PreferencePrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  Preference read(const nlohmann::ordered_json& record) const;
  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

 private:
  struct Wrap;
  Preference read_wrapped(const nlohmann::ordered_json& record) const;
  Preference read_chat(const nlohmann::ordered_json& record) const;
  Preference read_own(const nlohmann::ordered_json& record) const;
  Preference read_nectar(const nlohmann::ordered_json& record) const;
  // Returns the name that the records use for a message's "role" or "content".
  std::string property_name(const std::string& property) const;
  nlohmann::ordered_json user_message(const nlohmann::ordered_json& content) const;
  // Returns the text of a field that holds a list of messages (then of the last one), or a message, or a
  // text.
  std::string last_content(const nlohmann::ordered_json& record, const std::string& field) const;
  bool read_label(const nlohmann::ordered_json& record) const;

  const text::Tokenizer& tokenizer_;
  config::DatasetConfig dataset_;
  ConversationReader reader_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
  TextFormat prompt_format_, chosen_format_, rejected_format_, completion_format_;
  std::string variant_;  // the part of the type behind its dot
  const Wrap* wrap_ = nullptr;
  bool is_kto_ = false;
};

}  // namespace tessera::data
