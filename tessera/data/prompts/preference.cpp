#include "tessera/data/prompts/preference.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/text/chat_encoding.h"

namespace tessera::data {

// The texts around the parts of a chat of one turn, for a family of models.
struct PreferencePrompt::Wrap {
  std::string_view family, system_begin, user_begin, turn_end, assistant_begin, answer_end;
};

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kVariants[] = {"argilla", "argilla_chat", "icr", "intel", "prompt_pairs", "ultra"};

// Returns the first of some columns that the record has, or the last of them if it has none, so that an error
// asks for that one.
std::string first_of(const Json& record, std::initializer_list<const char*> columns) {
  for (const char* column : columns) {
    if (find_field(record, column) != nullptr) return column;
  }
  return *(columns.end() - 1);
}

// Returns the content of a message in a list by its place, of which -1 is the last.
std::string content_at(const Json& record, const std::string& field, int64_t index) {
  const Json& messages = required_array(record, field);
  const auto size = static_cast<int64_t>(messages.size());
  if (index >= size || size < 2) {
    throw Error(ErrorKind::Data, "FIELD-SIZE",
                "field '" + field + "' is too short for a question and an answer")
        .got(std::to_string(size) + " messages")
        .need("at least 2");
  }
  const Json& message = messages[static_cast<size_t>(index < 0 ? size - 1 : index)];
  if (!message.is_object()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "a message of '" + field + "' is not an object")
        .got(message.type_name())
        .need("{role, content}");
  }
  return required_text(message, "content");
}

}  // namespace

bool is_preference_type(std::string_view type) {
  const std::vector<std::string> names = preference_type_names();
  return type != "chat_template" && type != "user_defined" &&
         std::find(names.begin(), names.end(), type) != names.end();
}

std::vector<std::string> preference_type_names() {
  std::vector<std::string> names = {"chat_template",
                                    "chat_template.argilla",
                                    "chat_template.argilla_chat",
                                    "bradley_terry.chat_template",
                                    "chatml",
                                    "llama3",
                                    "zephyr.nectar",
                                    "passthrough",
                                    "user_defined"};
  for (const char* family : {"chatml.", "llama3."}) {
    for (const char* variant : kVariants) names.push_back(std::string(family) + variant);
  }
  return names;
}

PreferencePrompt::PreferencePrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      dataset_(dataset),
      reader_(dataset),
      prompt_format_(dataset.prompt_format, "prompt_format", dataset),
      chosen_format_(dataset.chosen_format, "chosen_format", dataset),
      rejected_format_(dataset.rejected_format, "rejected_format", dataset),
      completion_format_(dataset.completion_format, "completion_format", dataset),
      is_kto_(context.config.rl == "kto") {
  static constexpr Wrap kWraps[] = {{"chatml", "<|im_start|>system\n", "<|im_start|>user\n", "<|im_end|>\n",
                                     "<|im_start|>assistant\n", "<|im_end|>"},
                                    {"llama3", "<|start_header_id|>system<|end_header_id|>\n\n",
                                     "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
                                     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"}};
  const size_t dot = dataset.type.find('.');
  const std::string family = dataset.type.substr(0, dot);
  variant_ = dot == std::string::npos ? "" : dataset.type.substr(dot + 1);
  for (const Wrap& wrap : kWraps) {
    if (wrap.family == family) wrap_ = &wrap;
  }
  const std::vector<std::string> names = preference_type_names();
  const bool is_known = std::find(names.begin(), names.end(), dataset.type) != names.end();
  const bool has_kto = wrap_ != nullptr && variant_ != "icr" && !variant_.empty();
  if (!is_known || (is_kto_ && !has_kto && family != "user_defined" && family != "passthrough")) {
    throw Error(ErrorKind::Config, "DATASET-TYPE",
                "no type of preferences (rl: " + context.config.rl + ") is called '" + dataset.type + "'")
        .at(dataset.source_file, dataset.source_line)
        .need(is_kto_
                  ? "chatml.* or llama3.* with argilla, argilla_chat, intel, prompt_pairs or ultra, a map of "
                    "formats, or passthrough"
                  : join(names, ", "));
  }
  prompt_format_.check_names({"prompt", "system"});
  chosen_format_.check_names({"chosen"});
  rejected_format_.check_names({"rejected"});
  completion_format_.check_names({"completion"});
  if (uses_chat_template(dataset)) chat_template_ = choose_template(dataset, context);
}

Preference PreferencePrompt::read(const Json& record) const {
  if (wrap_ != nullptr) return read_wrapped(record);
  if (chat_template_ != nullptr) return read_chat(record);
  if (variant_ == "nectar") return read_nectar(record);
  return read_own(record);
}

Preference PreferencePrompt::read_wrapped(const Json& record) const {
  Preference out;
  std::string system = variant_ == "argilla_chat" ? "" : optional_text(record, "system");
  std::string question;
  if (variant_ == "argilla_chat") {
    question = content_at(record, is_kto_ ? "completion" : "chosen", 0);
  } else {
    question = required_text(record, variant_ == "argilla"        ? "instruction"
                                     : variant_ == "icr"          ? "input"
                                     : variant_ == "intel"        ? "question"
                                     : variant_ == "prompt_pairs" ? "prompt"
                                     : variant_ == "ultra"
                                         ? "prompt"
                                         : first_of(record, {"prompt", "input", "question", "instruction"}));
  }
  if (!system.empty()) {
    out.prompt.add_scaffold(wrap_->system_begin);
    out.prompt.add_content(system);
    out.prompt.add_scaffold(wrap_->turn_end);
  }
  out.prompt.add_scaffold(wrap_->user_begin);
  out.prompt.add_content(question);
  out.prompt.add_scaffold(wrap_->turn_end);
  out.prompt.add_scaffold(wrap_->assistant_begin);

  const auto answer = [&](const std::string& field, bool is_messages) {
    out.answers.push_back(is_messages ? content_at(record, field, 1) : required_text(record, field));
  };
  const bool is_chat = variant_ == "argilla_chat";
  if (is_kto_) {
    answer("completion", is_chat);
    out.label = read_label(record);
    return out;
  }
  answer(
      first_of(record, {"chosen", variant_ == "argilla" || variant_.empty() ? "chosen_response" : "chosen"}),
      is_chat || variant_ == "ultra");
  answer(first_of(record,
                  {"rejected", variant_ == "argilla" || variant_.empty() ? "rejected_response" : "rejected"}),
         is_chat || variant_ == "ultra");
  return out;
}

std::string PreferencePrompt::property_name(const std::string& property) const {
  const auto name = dataset_.message_property_mappings.find(property);
  return name == dataset_.message_property_mappings.end() ? property : name->second;
}

Json PreferencePrompt::user_message(const Json& content) const {
  return {{property_name("role"), "user"}, {property_name("content"), content}};
}

std::string PreferencePrompt::last_content(const Json& record, const std::string& field) const {
  const Json& value = required_value(record, field);
  if (const auto* text = value.get_ptr<const std::string*>()) return *text;
  const Json list = value.is_object() ? Json::array({value}) : value;
  if (!list.is_array() || list.empty() || !list.back().is_object()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not an answer")
        .got(value.type_name())
        .need("a text, a message, or a list of messages");
  }
  return required_text(list.back(), property_name("content"));
}

// Reads a chat: the prompt is what the template writes before an answer, which is rendered behind it.
Preference PreferencePrompt::read_chat(const Json& record) const {
  Json shaped = record;
  // If the prompt has no column of its own, it is what stands before the last message of `chosen`.
  const bool is_in_chosen = variant_ == "argilla_chat" ||
                            (variant_ == "argilla" && find_field(record, dataset_.field_messages) == nullptr);
  if (is_in_chosen) {
    Json messages = required_array(record, dataset_.field_chosen);
    messages.erase(messages.size() - 1);
    shaped[dataset_.field_messages] = messages;
  } else if (dataset_.type.starts_with("bradley_terry.")) {
    shaped[dataset_.field_messages] = Json::array({user_message(required_text(record, "input"))});
  } else if (const Json* text = find_field(record, dataset_.field_messages);
             text != nullptr && text->is_string()) {
    shaped[dataset_.field_messages] = Json::array({user_message(*text)});
  }
  const Conversation conversation = reader_.read(shaped);
  Preference out;
  const text::RenderedChat chat = chat_template_->render(conversation.messages, conversation.tools,
                                                         text::render_options(tokenizer_, true));
  for (const text::RenderedSegment& segment : chat.segments) {
    if (segment.is_content) {
      out.prompt.add_content(segment.text);
    } else {
      out.prompt.add_scaffold(segment.text);
    }
  }
  out.answers = {last_content(record, dataset_.field_chosen), last_content(record, dataset_.field_rejected)};
  return out;
}

Preference PreferencePrompt::read_own(const Json& record) const {
  Preference out;
  const std::string prompt = required_text(record, dataset_.field_prompt);
  const std::string system = optional_text(record, dataset_.field_system);
  prompt_format_.fill(
      [&](std::string_view place) -> std::string_view { return place == "system" ? system : prompt; },
      out.prompt);
  const auto answer = [&](const TextFormat& format, const std::string& field) {
    const std::string& text = required_text(record, field);
    out.answers.push_back(format.fill([&](std::string_view) -> std::string_view { return text; }));
  };
  if (is_kto_) {
    answer(completion_format_, dataset_.field_completion);
    out.label = read_label(record);
  } else {
    answer(chosen_format_, dataset_.field_chosen);
    answer(rejected_format_, dataset_.field_rejected);
  }
  return out;
}

// Takes the best answer, which has the lowest rank, and the next one. Axolotl takes the last two, of which
// the worst is then the chosen one.
Preference PreferencePrompt::read_nectar(const Json& record) const {
  Preference out;
  out.prompt.add_scaffold("<|system|>\n</s>\n<|user|>\n");
  out.prompt.add_content(required_text(record, "prompt"));
  out.prompt.add_scaffold("</s>\n<|assistant|>\n");
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& answer : required_array(record, "answers")) {
    const Json* rank = answer.is_object() ? find_field(answer, "rank") : nullptr;
    if (rank == nullptr || !rank->is_number()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "an element of 'answers' has no rank")
          .got(answer.type_name())
          .need("{answer, rank}");
    }
    ranked.emplace_back(rank->get<double>(), required_text(answer, "answer"));
  }
  if (ranked.size() < 2) {
    throw Error(ErrorKind::Data, "FIELD-SIZE", "field 'answers' is too short")
        .got("1 answer")
        .need("at least 2");
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  out.answers = {ranked[0].second, ranked[1].second};
  return out;
}

bool PreferencePrompt::read_label(const Json& record) const {
  const std::string& field = dataset_.field_label;
  const Json& label = required_value(record, field);
  if (label.is_boolean()) return label.get<bool>();
  throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not a boolean")
      .got(label.type_name())
      .need("true for a preferred answer, false for a rejected one");
}

void PreferencePrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const Preference preference = read(record.fields);
  const std::vector<int32_t> prompt =
      encode_marked(tokenizer_, preference.prompt, {.bos = chat_template_ == nullptr, .eos = false});
  for (const std::string& text : preference.answers) {
    MarkedText answer;
    answer.add_content(text);
    if (wrap_ != nullptr) answer.add_scaffold(wrap_->answer_end);
    Row row;
    append_ids(row, prompt, false);
    append_ids(row, encode_marked(tokenizer_, answer, {.bos = false, .eos = wrap_ == nullptr}), true);
    rows.push_back(std::move(row));
  }
}

std::vector<int32_t> PreferencePrompt::end_tokens() const {
  std::vector<int32_t> ids = eos_tokens(tokenizer_);
  if (wrap_ != nullptr) {
    if (const auto id = tokenizer_.token_to_id(wrap_->answer_end)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace tessera::data
