#include "tessera/data/prompts/token_classification.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWords[] = {"tokens", "words"};
constexpr const char* kLabels[] = {"ner_tags", "labels", "tags", "pos_tags"};

// Returns the first of `names` that the record has; `fallback` if it has none.
std::string first_column(const Json& record, std::span<const char* const> names,
                         const std::string& fallback) {
  for (const char* name : names) {
    if (record.contains(name)) return name;
  }
  return fallback;
}

bool has_no_label(const Json& label) {
  return label.is_null() || (label.is_number_integer() && label.get<int64_t>() == kIgnoreLabel);
}

}  // namespace

WordColumns find_word_columns(const Json& record, const config::DatasetConfig& dataset) {
  const config::DatasetConfig usual;
  return {dataset.field == usual.field ? first_column(record, kWords, "tokens") : dataset.field,
          dataset.field_label == usual.field_label ? first_column(record, kLabels, "ner_tags")
                                                   : dataset.field_label};
}

std::vector<std::string> read_words(const Json& record, const std::string& field) {
  std::vector<std::string> words;
  const Json& list = required_value(record, field);
  if (!list.is_array()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is no list of words")
        .got(list.type_name())
        .need("a list of texts, one for each word");
  }
  for (const Json& word : list) {
    const auto* text = word.get_ptr<const std::string*>();
    if (text == nullptr) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "a word of '" + field + "' is no text")
          .got(word.type_name())
          .need("a list of texts, one for each word");
    }
    words.push_back(*text);
  }
  return words;
}

WordEncoder::WordEncoder(const text::Tokenizer& tokenizer)
    : tokenizer_(tokenizer), frame_(tokenizer.encode_pair("a", std::nullopt)) {
  std::vector<int32_t> twice = tokenizer.encode("a");
  const std::vector<int32_t> once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  takes_space_ = tokenizer.encode("a a") != twice;
}

WordRow WordEncoder::encode(const std::vector<std::string>& words, std::optional<int64_t> most_tokens) const {
  const auto of_text = [](int32_t text) { return text >= 0; };
  const auto first = std::ranges::find_if(frame_.texts, of_text) - frame_.texts.begin();
  const auto around = std::ssize(frame_.ids) - std::ranges::count_if(frame_.texts, of_text);
  WordRow made;
  const auto add = [&](int32_t id, int64_t word) {
    made.row.input_ids.push_back(id);
    made.word_of_token.push_back(word);
  };
  const auto add_frame = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      if (!of_text(frame_.texts[static_cast<size_t>(i)])) add(frame_.ids[static_cast<size_t>(i)], -1);
    }
  };
  add_frame(0, first);
  int64_t room = most_tokens ? std::max<int64_t>(0, *most_tokens - around) : -1;
  for (const std::string& word : words) {
    const auto number = std::ssize(made.first_tokens);
    made.first_tokens.push_back(-1);
    for (const int32_t id : tokenizer_.encode(takes_space_ ? " " + word : word, {.parse_special = false})) {
      if (room-- == 0) {
        room = 0;
        break;
      }
      if (made.first_tokens.back() < 0) made.first_tokens.back() = std::ssize(made.row.input_ids);
      add(id, number);
    }
  }
  add_frame(first, std::ssize(frame_.ids));
  made.row.labels.assign(made.row.input_ids.size(), static_cast<int32_t>(kIgnoreLabel));
  return made;
}

TokenClassificationPrompt::TokenClassificationPrompt(const config::DatasetConfig& dataset,
                                                     const PromptContext& context)
    : dataset_(dataset), rows_(*context.classification), encoder_(*context.tokenizer) {
  if (context.config.excess_length_strategy == config::ExcessLength::Truncate)
    most_tokens_ =
        std::min(context.config.sequence_len, rows_.most_tokens.value_or(context.config.sequence_len));
  const Classification& classes = rows_.classes;
  for (int64_t i = 0; i < classes.num_labels(); ++i) {
    const std::string& label = classes.labels[static_cast<size_t>(i)];
    const auto inner = label.starts_with("B-") ? classes.find("I-" + label.substr(2)) : std::nullopt;
    inner_classes_.push_back(inner.value_or(i));
  }
}

void TokenClassificationPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  const WordColumns columns = find_word_columns(record.fields, dataset_);
  const std::vector<std::string> words = read_words(record.fields, columns.words);
  WordRow made = encoder_.encode(words, most_tokens_);
  Row& row = made.row;
  const Json& labels = required_value(record.fields, columns.labels);
  if (!labels.is_null() && (!labels.is_array() || labels.size() != words.size())) {
    throw Error(ErrorKind::Data, "FIELD-SIZE",
                "field '" + columns.labels + "' does not have a label for each word")
        .got(labels.is_array() ? std::to_string(labels.size()) + " labels" : labels.type_name())
        .need(std::to_string(words.size()) + ", as many as '" + columns.words + "'");
  }
  for (size_t i = 0; !labels.is_null() && i < row.input_ids.size(); ++i) {
    const int64_t word = made.word_of_token[i];
    if (word < 0 || has_no_label(labels[static_cast<size_t>(word)])) continue;
    const bool is_first = made.first_tokens[static_cast<size_t>(word)] == static_cast<int64_t>(i);
    if (!is_first && !rows_.labels_all_tokens) continue;
    const int64_t found = class_of(labels[static_cast<size_t>(word)], rows_.classes, columns.labels);
    row.labels[i] = row.input_ids[i];
    row.targets.push_back(static_cast<float>(is_first ? found : inner_classes_[static_cast<size_t>(found)]));
  }
  rows.push_back(std::move(row));
}

}  // namespace tessera::data
