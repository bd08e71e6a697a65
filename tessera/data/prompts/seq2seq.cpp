#include "tessera/data/prompts/seq2seq.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// Names of columns that published datasets have.
constexpr std::pair<const char*, const char*> kPairsOfColumns[] = {
    {"input", "target"},       {"inputs", "targets"},   {"source", "target"},
    {"prompt", "completion"},  {"input", "output"},     {"document", "summary"},
    {"article", "highlights"}, {"dialogue", "summary"}, {"question", "answer"}};

// Returns the columns of the source and of the target.
std::pair<std::string, std::string> find_columns(const Json& record, const config::DatasetConfig& dataset) {
  const auto has = [&](const std::string& name) { return find_field(record, name) != nullptr; };
  if (!dataset.field_target.empty()) return {dataset.field_input, dataset.field_target};
  if (dataset.field_input == config::DatasetConfig().field_input) {
    for (const auto& [source, target] : kPairsOfColumns) {
      if (has(source) && has(target)) return {source, target};
    }
  }
  return {dataset.field_input, "target"};
}

// Takes tokens off the end of `ids`, but the last one, until there are `most` of them, or one.
void shorten(std::vector<int32_t>& ids, int64_t most) {
  const auto size = std::ssize(ids);
  if (size <= most || size < 2) return;
  const int64_t kept = std::max<int64_t>(1, most);
  ids.erase(ids.begin() + kept - 1, ids.end() - 1);
}

}  // namespace

Seq2SeqPrompt::Seq2SeqPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : tokenizer_(*context.tokenizer), dataset_(dataset), rows_(*context.seq2seq) {
  if (context.config.excess_length_strategy == config::ExcessLength::Truncate)
    most_tokens_ = context.config.sequence_len;
  const std::string& type = dataset.type;
  if (type.empty() || type == "prompt_completion") return;
  if (type == "chat_template" || type == "sharegpt") {
    conversation_ = std::make_unique<ConversationReader>(dataset);
    return;
  }
  const FoundInstructType found = find_instruct_type(type);
  if (found.type != nullptr) {
    instruct_ = std::make_unique<InstructPrompt>(found, dataset, context);
  } else if (type == "user_defined") {
    instruct_ = std::make_unique<InstructPrompt>(dataset, context);
  } else {
    throw Error(ErrorKind::Config, "DATASET-TYPE", "type '" + type + "' has no source and target")
        .at(dataset.source_file, dataset.source_line)
        .need(
            "no type (columns of a source and a target), an instruction type such as alpaca, user_defined, "
            "prompt_completion, chat_template or sharegpt, with task: seq2seq");
  }
}

Seq2SeqPrompt::Texts Seq2SeqPrompt::read_conversation(const Json& record) const {
  const Conversation conversation = conversation_->read(record);
  const auto last = std::find_if(conversation.turns.rbegin(), conversation.turns.rend(),
                                 [](const Turn& turn) { return turn.role == "assistant"; });
  const auto answer = static_cast<size_t>(conversation.turns.rend() - last);
  if (answer < 2) {
    throw Error(ErrorKind::Data, "CONVERSATION", "the conversation has no answer that follows a message")
        .need("messages, the last one of the assistant");
  }
  Texts texts;
  for (size_t i = 0; i < answer; ++i) {
    const std::string content = optional_text(conversation.messages[i], "content");
    if (i + 1 == answer) {
      texts.target = content;
    } else if (!content.empty()) {
      texts.source += (texts.source.empty() ? "" : "\n") + content;
    }
  }
  return texts;
}

Seq2SeqPrompt::Texts Seq2SeqPrompt::read(const Json& record) const {
  if (conversation_ != nullptr) return read_conversation(record);
  if (instruct_ != nullptr) {
    auto [prompt, answer] = instruct_->texts(record);
    return {std::move(prompt), std::move(answer)};
  }
  const bool is_completion = dataset_.type == "prompt_completion";
  const auto [source, target] = is_completion ? std::pair(dataset_.field_prompt, dataset_.field_completion)
                                              : find_columns(record, dataset_);
  return {required_text(record, source), required_text(record, target)};
}

void Seq2SeqPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const Texts texts = read(record.fields);
  if (texts.target.empty()) {
    rows.emplace_back();
    return;
  }
  const auto encode = [&](const std::string& text) {
    return tokenizer_.encode(text, {.parse_special = true, .add_special_tokens = true});
  };
  std::vector<int32_t> source = encode(texts.source), target = encode(texts.target);
  if (most_tokens_) {
    // The start token needs a place, too.
    shorten(source, *most_tokens_ - std::ssize(target) - 1);
    shorten(target, *most_tokens_ - std::ssize(source) - 1);
  }
  // A tokenizer without an end token makes no tokens of an empty text: there is nothing to read, or to learn.
  Row row;
  if (!source.empty() && !target.empty()) {
    append_ids(row, source, /*trained=*/false);
    append_ids(row, {rows_.decoder_start_token_id}, /*trained=*/false);
    append_ids(row, target, /*trained=*/true);
    row.type_ids.assign(source.size(), 0);
    row.type_ids.resize(row.input_ids.size(), 1);
  }
  rows.push_back(std::move(row));
}

std::vector<int32_t> Seq2SeqPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
