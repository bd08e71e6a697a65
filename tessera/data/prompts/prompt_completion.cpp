#include "tessera/data/prompts/prompt_completion.h"

#include <nlohmann/json.hpp>

#include "tessera/data/prompts/fields.h"
#include "tessera/data/prompts/text_format.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// Returns a list of messages: the field's own, or its text as one message of `role`.
Json messages_of(const Json& record, const std::string& field, const char* role) {
  const Json& value = required_value(record, field);
  if (value.is_string()) return Json::array({{{"role", role}, {"content", value}}});
  return required_array(record, field);
}

}  // namespace

PromptCompletion::PromptCompletion(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      field_prompt_(dataset.field_prompt),
      field_completion_(dataset.field_completion),
      field_messages_(dataset.field_messages),
      train_on_inputs_(context.config.train_on_inputs),
      splits_border_(context.config.answer_border == "split") {
  try {
    chat_ = std::make_unique<ChatPrompt>(dataset, context);
  } catch (const Error& error) {
    // Texts need no chat template.
    if (error.code() != "E-MODEL-NO-CHAT-TEMPLATE") throw;
    no_template_ = error;
  }
}

void PromptCompletion::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const bool is_text = required_value(record.fields, field_prompt_).is_string() &&
                       required_value(record.fields, field_completion_).is_string();
  if (!is_text) return tokenize_chat(record, rows);
  rows.push_back(tokenize_text(record));
}

Row PromptCompletion::tokenize_text(const PromptRecord& record) const {
  MarkedText prompt;
  prompt.add_content(required_text(record.fields, field_prompt_));
  std::string_view completion = required_text(record.fields, field_completion_);
  // Such an end is meant as the token that every completion gets.
  const auto eos = tokenizer_.eos_id();
  const std::string end = eos ? tokenizer_.id_to_token(*eos) : "";
  if (!end.empty() && completion.ends_with(end)) completion.remove_suffix(end.size());
  if (completion.empty()) return {};
  const JoinedIds joined = encode_joined(tokenizer_, prompt, completion, splits_border_);
  if (record.notes != nullptr) record.notes->merges_border = joined.merges && !train_on_inputs_;
  return joined_row(joined, train_on_inputs_);
}

void PromptCompletion::tokenize_chat(const PromptRecord& record, std::vector<Row>& rows) const {
  if (no_template_) throw Error(*no_template_);
  Json messages = messages_of(record.fields, field_prompt_, "user");
  const size_t prompt_size = messages.size();
  for (const Json& message : messages_of(record.fields, field_completion_, "assistant"))
    messages.push_back(message);
  Json conversation = record.fields;
  conversation.erase(field_prompt_);
  conversation.erase(field_completion_);
  conversation[field_messages_] = std::move(messages);
  chat_->tokenize_answer({conversation, true, true, record.notes}, prompt_size, rows);
}

std::vector<int32_t> PromptCompletion::end_tokens() const {
  return chat_ != nullptr ? chat_->end_tokens() : eos_tokens(tokenizer_);
}

}  // namespace tessera::data
