// Words with a label each, for a classifier of tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/data/prompts/classification.h"

namespace tessera::data {

// The columns of the words and of their labels.
struct WordColumns {
  std::string words, labels;
};
// Returns the columns of a record: those of the entry's `field` and `field_label`, or, where the entry leaves
// their defaults, `tokens` or `words`, and `ner_tags`, `labels`, `tags` or `pos_tags`.
WordColumns find_word_columns(const nlohmann::ordered_json& record, const config::DatasetConfig& dataset);

// A row of words, and the position of the first token of each; -1 for a word without a token in the row.
struct WordRow {
  Row row;
  std::vector<int64_t> first_tokens;
  std::vector<int64_t> word_of_token;  // -1 for tokens of the post-processor
};

// Makes rows of words, as Transformers does with is_split_into_words: each word is encoded by itself, and the
// tokens of the post-processor stand around all. A word is encoded as it would be behind another one; with
// GPT-2's and RoBERTa's tokenizers this is add_prefix_space. References the tokenizer.
class WordEncoder {
 public:
  explicit WordEncoder(const text::Tokenizer& tokenizer);

  // A row of more than `most_tokens` loses its last words.
  WordRow encode(const std::vector<std::string>& words, std::optional<int64_t> most_tokens) const;

 private:
  const text::Tokenizer& tokenizer_;
  text::PairEncoding frame_;  // the tokens of the post-processor, around those of one letter
  bool takes_space_ = false;
};

// Records of task: token_classification: a list of words and a list of their labels, the names or numbers of
// classes. The first token of a word has its label, and the others have none, or with label_all_tokens the
// same, of which B-X becomes I-X where there is that class. A word whose label is null or -100 has none.
class TokenClassificationPrompt : public PromptType {
 public:
  TokenClassificationPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override { return {}; }

 private:
  const config::DatasetConfig dataset_;
  const ClassificationRows& rows_;
  const WordEncoder encoder_;
  std::optional<int64_t> most_tokens_;
  std::vector<int64_t> inner_classes_;  // of further tokens of a word, by the class of the first one
};

// Returns the words of a column, which must be a list of texts.
std::vector<std::string> read_words(const nlohmann::ordered_json& record, const std::string& field);

}  // namespace tessera::data
