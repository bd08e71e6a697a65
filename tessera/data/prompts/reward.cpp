#include "tessera/data/prompts/reward.h"

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/text/chat_encoding.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

bool is_chat(const config::DatasetConfig& dataset) {
  return dataset.type == "chat_template" || dataset.type == "bradley_terry.chat_template";
}

}  // namespace

RewardPrompt::RewardPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer), dataset_(dataset), rows_(*context.classification), reader_(dataset) {
  if (!dataset.type.empty() && !is_chat(dataset))
    preferences_ = std::make_unique<const PreferencePrompt>(dataset, context);
  if (is_chat(dataset)) chat_template_ = choose_template(dataset, context);
  if (!dataset.type.empty()) return;
  try {
    chat_template_ = choose_template(dataset, context);
  } catch (const Error&) {
    // Records of plain texts need none; encode_chat() tells what is missing.
  }
}

std::vector<int32_t> RewardPrompt::encode_text(const std::string& text) const {
  std::vector<int32_t> ids = tokenizer_.encode(text, {.parse_special = true, .add_special_tokens = true});
  const auto end = tokenizer_.eos_id();
  if (!rows_.reads_first && end && !ids.empty() && ids.back() != *end) ids.push_back(*end);
  return ids;
}

std::vector<int32_t> RewardPrompt::encode_chat(const Json& record, const Json& before,
                                               const std::string& column) const {
  if (chat_template_ == nullptr) {
    throw Error(ErrorKind::Model, "CHAT-TEMPLATE",
                "field '" + column + "' holds messages, and the model has no chat template")
        .hint("set chat_template");
  }
  Json messages = before;
  const Json& answer = required_value(record, column);
  if (const auto* text = answer.get_ptr<const std::string*>()) {
    messages.push_back({{"role", "assistant"}, {"content", *text}});
  } else {
    for (const Json& message : required_array(record, column)) messages.push_back(message);
  }
  Json shaped = record;
  shaped[reader_.field_messages()] = std::move(messages);
  const Conversation conversation = reader_.read(shaped);
  const text::RenderedChat chat =
      chat_template_->render(conversation.messages, conversation.tools, text::render_options(tokenizer_));
  MarkedText marked;
  for (const text::RenderedSegment& segment : chat.segments)
    segment.is_content ? marked.add_content(segment.text) : marked.add_scaffold(segment.text);
  return encode_marked(tokenizer_, marked, {.bos = false, .eos = false});
}

RewardPrompt::Pair RewardPrompt::read(const PromptRecord& record) const {
  const Json& fields = record.fields;
  if (preferences_ != nullptr) {
    std::vector<Row> rows;
    preferences_->tokenize(record, rows);
    return {std::move(rows[0].input_ids), std::move(rows[1].input_ids)};
  }
  Json before = Json::array();
  if (dataset_.type == "bradley_terry.chat_template") {
    if (const std::string system = optional_text(fields, "system"); !system.empty())
      before.push_back({{"role", "system"}, {"content", system}});
    before.push_back({{"role", "user"}, {"content", required_text(fields, "input")}});
  } else if (const Json* prompt = find_field(fields, dataset_.field_prompt)) {
    if (prompt->is_array()) before = *prompt;
    if (prompt->is_string() && is_chat(dataset_))
      before.push_back({{"role", "user"}, {"content", prompt->get<std::string>()}});
  }
  const Json& chosen = required_value(fields, dataset_.field_chosen);
  if (chosen.is_array() || is_chat(dataset_) || !before.empty()) {
    return {encode_chat(fields, before, dataset_.field_chosen),
            encode_chat(fields, before, dataset_.field_rejected)};
  }
  const std::string prompt = optional_text(fields, dataset_.field_prompt);
  return {encode_text(prompt + required_text(fields, dataset_.field_chosen)),
          encode_text(prompt + required_text(fields, dataset_.field_rejected))};
}

void RewardPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const Pair pair = read(record);
  Row row;
  if (pair.chosen.empty() || pair.rejected.empty()) {
    rows.push_back(std::move(row));
    return;
  }
  for (const std::vector<int32_t>* ids : {&pair.chosen, &pair.rejected}) {
    const size_t begin = row.input_ids.size();
    const size_t read = ClassificationPrompt::read_position({*ids, {}}, rows_);
    append_ids(row, *ids, /*trained=*/false);
    row.labels[begin + read] = (*ids)[read];
    row.type_ids.resize(row.input_ids.size(), begin == 0 ? 0 : 1);
  }
  const Json* const margin = find_field(record.fields, "margin");
  if (margin != nullptr && !margin->is_number()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "field 'margin' is no number").got(margin->type_name());
  }
  row.targets.assign(2, margin == nullptr ? 0.0F : margin->get<float>());
  rows.push_back(std::move(row));
}

}  // namespace tessera::data
