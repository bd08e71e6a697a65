// Conversations rendered by a chat template.
#pragma once

#include <optional>
#include <set>

#include "tessera/data/prompts/chat_labels.h"
#include "tessera/data/prompts/conversation.h"
#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// Returns the template of an entry: its own, or the recipe's. Throws what select_chat_template() throws.
std::shared_ptr<const text::ChatTemplate> choose_template(const config::DatasetConfig& dataset,
                                                          const PromptContext& context);

// Types chat_template and sharegpt. The contents of a turn are trained if its role is in roles_to_train, or
// if train_on_inputs is set; the message's own training field goes before both. End-of-turn tokens are
// trained by train_on_eos and train_on_eot. Parts of a message that say so are trained or masked by
// themselves. If both roles_to_train and train_on_eos are empty, the last message is trained with its end
// token, if it is an answer (with train_on_inputs, everything).
class ChatPrompt : public PromptType {
 public:
  ChatPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  // Trains everything from message number `first` on, up to the end token of the last one; the number counts
  // the messages of the record.
  void tokenize_answer(const PromptRecord& record, size_t first, std::vector<Row>& rows) const;
  std::vector<int32_t> end_tokens() const override { return end_tokens_; }

 private:
  text::RenderOptions render_options(bool add_generation_prompt) const;
  text::RenderedChat render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                            bool add_generation_prompt = false) const;
  // Returns EOS and the end-of-turn token of the template. Renders a conversation of two short messages to
  // find them; if the template runs over its limits even there, throws what rendering throws.
  std::vector<int32_t> find_end_tokens() const;
  std::vector<int32_t> given_end_tokens(const config::DatasetConfig& dataset,
                                        const std::vector<std::string>& names);
  std::vector<bool> choose_turns(const Conversation& conversation) const;
  Row make_row(const Conversation& conversation, std::optional<size_t> first_answer,
               RecordNotes& notes) const;
  void note_unread_fields(const Conversation& conversation, RecordNotes& notes) const;
  void widen_turns(const Conversation& conversation, const std::string& text, const text::Encoding& encoded,
                   std::vector<TurnSpans>& turns, const std::vector<bool>& train) const;
  std::vector<int32_t> label_answer(const text::Encoding& encoded, const std::vector<TurnSpans>& turns,
                                    size_t first) const;

  const text::Tokenizer& tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
  ConversationReader reader_;
  std::set<std::string> roles_to_train_;
  EndRules rules_;
  bool train_on_inputs_ = false;
  bool last_message_only_ = false, splits_border_ = false;
  std::optional<int64_t> now_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  std::vector<int32_t> end_tokens_;
  bool eos_is_eot_ = true;
};

}  // namespace tessera::data
