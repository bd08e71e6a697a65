#include "tessera/data/prompts/chat.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/json_values.h"
#include "tessera/text/chat_encoding.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

EndRule parse_end_rule(const config::DatasetConfig& dataset, const char* key, const std::string& value) {
  if (value == "all") return EndRule::All;
  if (value == "turn" || value.empty()) return EndRule::Turn;
  if (value == "last") return EndRule::Last;
  if (value == "none") return EndRule::None;
  throw Error(ErrorKind::Config, "END-RULE", std::string("datasets: unknown ") + key)
      .at(dataset.source_file, dataset.source_line)
      .got("'" + value + "'")
      .need("all, turn, last or none");
}

// Returns the variables of a template, with values as YAML reads them: true, 3, text. Null if there are none.
std::shared_ptr<const Json> template_variables(const std::map<std::string, std::string>& texts) {
  if (texts.empty()) return nullptr;
  auto variables = std::make_shared<Json>(Json::object());
  for (const auto& [name, text] : texts) {
    const Json value = Json::parse(text, nullptr, false);
    (*variables)[name] = value.is_boolean() || value.is_number() ? value : Json(text);
  }
  return variables;
}

// Returns whether a message of this role asks for an answer, and so is none.
bool is_question(const std::string& role) {
  constexpr const char* kAsking[] = {"user",     "system",  "developer",   "tool",
                                     "function", "ipython", "observation", "environment"};
  return std::ranges::find(kAsking, role) != std::end(kAsking);
}

}  // namespace

std::shared_ptr<const text::ChatTemplate> choose_template(const config::DatasetConfig& dataset,
                                                          const PromptContext& context) {
  if (dataset.chat_template.empty() && dataset.chat_template_jinja.empty()) {
    // The pointer does not own the template, which the caller keeps for longer than the prompt type.
    if (context.chat_template != nullptr)
      return {std::shared_ptr<const text::ChatTemplate>(), context.chat_template};
    return text::select_chat_template("", "", context.config.source_folder, *context.tokenizer);
  }
  return text::select_chat_template(dataset.chat_template, dataset.chat_template_jinja,
                                    context.config.source_folder, *context.tokenizer);
}

ChatPrompt::ChatPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer),
      chat_template_(choose_template(dataset, context)),
      reader_(dataset),
      train_on_inputs_(context.config.train_on_inputs),
      splits_border_(context.config.answer_border == "split"),
      now_(context.now),
      variables_(template_variables(context.config.chat_template_kwargs)) {
  const std::vector<std::string> roles =
      dataset.roles_to_train.value_or(std::vector<std::string>{"assistant"});
  for (const std::string& role : roles)
    roles_to_train_.insert(reader_.knows_role(role) ? reader_.role_of(role) : role);
  rules_.eos = parse_end_rule(dataset, "train_on_eos", dataset.train_on_eos);
  rules_.eot = parse_end_rule(dataset, "train_on_eot",
                              dataset.train_on_eot.empty() ? dataset.train_on_eos : dataset.train_on_eot);
  last_message_only_ = roles.empty() && dataset.train_on_eos.empty() &&
                       dataset.message_field_training.empty() &&
                       dataset.message_field_training_detail.empty();
  const std::vector<std::string>& eot_tokens = context.config.eot_tokens;
  end_tokens_ = eot_tokens.empty() ? find_end_tokens() : given_end_tokens(dataset, eot_tokens);
}

void ChatPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const Conversation conversation = reader_.read(record.fields);
  RecordNotes ignored;
  RecordNotes& notes = record.notes != nullptr ? *record.notes : ignored;
  std::optional<size_t> first;
  if (last_message_only_) first = conversation.turns.size() - 1;
  notes.ends_with_question = first && !train_on_inputs_ && is_question(conversation.turns.back().role);
  rows.push_back(make_row(conversation, first, notes));
  if (!notes.ends_with_question) return;
  std::ranges::fill(rows.back().labels, static_cast<int32_t>(kIgnoreLabel));
  notes.merges_border = false;
}

void ChatPrompt::tokenize_answer(const PromptRecord& record, size_t first, std::vector<Row>& rows) const {
  const Conversation conversation = reader_.read(record.fields);
  RecordNotes ignored;
  // The reader may have put a system message first, or have taken one away.
  const size_t num_given = record.fields.at(reader_.field_messages()).size();
  first = std::min(first + conversation.turns.size() - num_given, conversation.turns.size() - 1);
  rows.push_back(make_row(conversation, first, record.notes != nullptr ? *record.notes : ignored));
}

// Makes the row of a conversation. What is trained is everything from the turn `first_answer` on, or else
// what the entry's keys say.
Row ChatPrompt::make_row(const Conversation& conversation, std::optional<size_t> first_answer,
                         RecordNotes& notes) const {
  note_unread_fields(conversation, notes);
  std::vector<bool> train = choose_turns(conversation);
  if (first_answer) {
    for (size_t i = 0; i < train.size(); ++i) train[i] = i >= *first_answer;
  }
  const text::RenderedChat chat = render(conversation.messages, conversation.tools);
  text::Encoding encoded = text::encode_chat(tokenizer_, chat);
  const bool has_blocks = chat_template_->has_generation_blocks(conversation.tools);
  std::vector<TurnSpans> turns = find_turn_spans(chat, conversation.turns, has_blocks);
  if (!has_blocks) widen_turns(conversation, chat.text(), encoded, turns, train);

  std::vector<int64_t> borders;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (train[i] && !turns[i].ranges.empty()) borders.push_back(turns[i].ranges.front().begin);
    if (first_answer && !borders.empty()) break;
  }
  std::ranges::sort(borders);
  notes.merges_border = !train_on_inputs_ && reaches_over(encoded, borders);
  if (notes.merges_border && splits_border_) encoded = text::encode_chat(tokenizer_, chat, borders);

  Row row;
  row.input_ids = encoded.ids;
  if (first_answer) {
    row.labels = label_answer(encoded, turns, *first_answer);
    return row;
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!train[i] || !conversation.turns[i].has_spans()) continue;
    const Json& message = conversation.messages[i];
    apply_train_spans(chat, conversation.turns, static_cast<int64_t>(i), io::text_at(message, "content"),
                      io::text_at(message, reader_.thinking_key()), turns[i]);
  }
  row.labels =
      label_chat(encoded, turns, train, rules_, end_tokens_, tokenizer_.eos_id().value_or(-1), eos_is_eot_);
  return row;
}

void ChatPrompt::note_unread_fields(const Conversation& conversation, RecordNotes& notes) const {
  for (const Json& message : conversation.messages) {
    for (const auto& item : message.items()) {
      const std::string& field = item.key();
      if (field != "role" && field != "content" && !chat_template_->reads(field, conversation.tools))
        notes.unread_fields.push_back(field);
    }
  }
}

text::RenderOptions ChatPrompt::render_options(bool add_generation_prompt) const {
  text::RenderOptions options = text::render_options(tokenizer_, add_generation_prompt);
  options.now = now_;
  options.variables = variables_;
  return options;
}

text::RenderedChat ChatPrompt::render(const Json& messages, const Json& tools,
                                      bool add_generation_prompt) const {
  try {
    return chat_template_->render(messages, tools, render_options(add_generation_prompt));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Model) throw;
    throw Error(ErrorKind::Data, "CHAT-TEMPLATE",
                "the chat template refuses this conversation: " + std::string(error.message()));
  }
}

// Finds EOS, and the control token that the template puts behind an assistant's last message.
std::vector<int32_t> ChatPrompt::find_end_tokens() const {
  std::vector<int32_t> ids;
  if (const auto eos = tokenizer_.eos_id()) ids.push_back(*eos);
  const Json probe = {{{"role", "user"}, {"content", "question"}},
                      {{"role", "assistant"}, {"content", "answer"}}};
  try {
    const text::RenderedChat chat = chat_template_->render(probe, nullptr, render_options(false));
    const std::vector<TurnSpans> turns =
        find_turn_spans(chat, {{.role = "user"}, {.role = "assistant"}}, false);
    if (turns[1].ranges.empty()) return ids;
    const text::Encoding encoded = text::encode_chat(tokenizer_, chat);
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      if (encoded.spans[i].begin < turns[1].closing.begin || !tokenizer_.is_special(encoded.ids[i])) continue;
      if (std::find(ids.begin(), ids.end(), encoded.ids[i]) == ids.end()) ids.push_back(encoded.ids[i]);
      break;
    }
  } catch (const Error& error) {
    // A template that runs over a limit here does so for any conversation.
    if (error.code() == "E-MODEL-TEMPLATE-LIMIT") throw;
    // A template may refuse so plain a conversation: then EOS alone counts.
  }
  return ids;
}

// Returns the ids of the recipe's eot_tokens, and EOS.
std::vector<int32_t> ChatPrompt::given_end_tokens(const config::DatasetConfig& dataset,
                                                  const std::vector<std::string>& names) {
  std::vector<int32_t> ids;
  const auto eos = tokenizer_.eos_id();
  for (const std::string& name : names) {
    const auto id = tokenizer_.token_to_id(name);
    if (!id) {
      throw Error(ErrorKind::Config, "EOT-TOKEN", "eot_tokens: no token of the model's vocabulary")
          .at(dataset.source_file, dataset.source_line)
          .got("'" + name + "'")
          .need("a text that is one token");
    }
    const bool is_written = chat_template_->all_sources().find(name) != std::string::npos || id == eos;
    if (!is_written)
      log::warn("eot_tokens: the chat template of " + dataset.path + " does not write '" + name + "'");
    ids.push_back(*id);
  }
  eos_is_eot_ = eos && std::find(ids.begin(), ids.end(), *eos) != ids.end();
  if (eos_is_eot_ && names.size() > 1 && rules_.eos != rules_.eot) {
    throw Error(
        ErrorKind::Config, "EOT-TOKEN",
        "train_on_eos and train_on_eot disagree about the end-of-sequence token, which is one of eot_tokens")
        .at(dataset.source_file, dataset.source_line)
        .hint("remove it from eot_tokens, or set both keys to the same value");
  }
  if (eos && !eos_is_eot_) ids.push_back(*eos);
  return ids;
}

std::vector<bool> ChatPrompt::choose_turns(const Conversation& conversation) const {
  std::vector<bool> train;
  for (const Turn& turn : conversation.turns) {
    const bool by_role = train_on_inputs_ || roles_to_train_.contains(turn.role);
    const bool has_any = (turn.content_spans && !turn.content_spans->empty()) ||
                         (turn.reasoning_spans && !turn.reasoning_spans->empty());
    train.push_back(turn.train.value_or(turn.has_spans() ? has_any : by_role));
  }
  return train;
}

// Widens the ranges of trained turns with tool calls or reasoning, because what the template itself writes
// into such a turn is the assistant's to write too. The turn then starts where the prompt for it ends, if the
// text begins with that prompt; else at the last line that both begin (Qwen's prompt opens a thought that a
// call has none of). It ends before its end-of-turn token.
void ChatPrompt::widen_turns(const Conversation& conversation, const std::string& text,
                             const text::Encoding& encoded, std::vector<TurnSpans>& turns,
                             const std::vector<bool>& train) const {
  Json before = Json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    if (train[i] && !conversation.turns[i].text_only && i > 0 && !turns[i].ranges.empty()) {
      const std::string prompt = render(before, conversation.tools, true).text();
      auto size = static_cast<size_t>(
          std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end()).first - prompt.begin());
      if (size < prompt.size()) size = text.rfind('\n', size == 0 ? 0 : size - 1) + 1;
      const auto begin = static_cast<int64_t>(size);
      if (begin > turns[i - 1].closing.begin && begin <= turns[i].ranges.front().begin)
        turns[i].ranges.front().begin = begin;
      const int64_t end = find_end_token(encoded, turns[i].closing, end_tokens_);
      if (end >= 0)
        turns[i].ranges.back().end = std::max(turns[i].ranges.back().end, encoded.spans[end].begin);
    }
    before.push_back(conversation.messages[i]);
  }
}

std::vector<int32_t> ChatPrompt::label_answer(const text::Encoding& encoded,
                                              const std::vector<TurnSpans>& turns, size_t first) const {
  if (train_on_inputs_) return encoded.ids;
  const auto is_written = [](const TurnSpans& turn) { return !turn.ranges.empty(); };
  const auto begin = std::find_if(turns.begin() + static_cast<ptrdiff_t>(first), turns.end(), is_written);
  if (begin == turns.end())
    return std::vector<int32_t>(encoded.ids.size(), static_cast<int32_t>(kIgnoreLabel));
  const auto last = std::find_if(turns.rbegin(), turns.rend(), is_written);
  return label_from(encoded, begin->ranges.front().begin, *last, end_tokens_);
}

}  // namespace tessera::data
