// Texts with a label, for a classifier.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/core/classification.h"
#include "tessera/data/prompts/prompt.h"

namespace tessera::data {

// The facts that the rows of a classifier depend on, beside the tokenizer.
struct ClassificationRows {
  Classification classes;
  bool reads_first = true;         // the classifier reads the first token of a row; else the last one
  bool labels_all_tokens = false;  // of a word with several tokens, not the first alone (Tokens)
  bool of_pairs = false;           // rows are pairs of texts (prompts/reward.h)
  // The last token that a classifier reads is not of this id, as Transformers takes it for padding.
  std::optional<int64_t> pad_token_id;
  std::optional<int64_t> most_tokens = {};  // the longest row that the model takes
};

// The two columns of a pair of texts; the second may be empty.
struct TextColumns {
  std::string first, second;
};

// Returns the number that a label is, or that its text says, as the columns of a CSV file do; nothing for any
// other label.
std::optional<double> label_number(const nlohmann::ordered_json& label);

// Returns the columns of a record that hold its texts: those of the entry's `field` and `field_text_pair`; a
// record without `field` may have the columns of one of the GLUE tasks, such as sentence1 and sentence2.
TextColumns find_text_columns(const nlohmann::ordered_json& record, const config::DatasetConfig& dataset);

// Records of task: classification: one text or two, encoded as the tokenizer's post-processor says, and in
// `field_label` the name or number of a class; for several labels a list of names, or a 0 or 1 for each; for
// numbers one, or a list. A record whose label is null or -1 gives a row without a label. With
// excess_length_strategy: truncate, the longer text loses its last tokens until the row fits sequence_len and
// the model, as with `longest_first` of Transformers.
class ClassificationPrompt : public PromptType {
 public:
  ClassificationPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override { return {}; }

  // Returns the row of a text or two, without a label.
  static Row make_row(const text::Tokenizer& tokenizer, std::string_view first,
                      std::optional<std::string_view> second, std::optional<int64_t> most_tokens);
  // Returns the position of the row that the classifier reads.
  static size_t read_position(const Row& row, const ClassificationRows& rows);

 private:
  std::vector<float> read_targets(const nlohmann::ordered_json& record) const;

  const text::Tokenizer& tokenizer_;
  const config::DatasetConfig dataset_;
  const ClassificationRows& rows_;
  std::optional<int64_t> most_tokens_;
};

// Returns the number of the class that a label names or is. `field` is where it stands, for the error:
// Error(Data, "CLASS-LABEL") for anything else.
int64_t class_of(const nlohmann::ordered_json& label, const Classification& classes,
                 const std::string& field);

// Returns the classes that the labels of `datasets` show: names in alphabetical order or as many as the
// largest number says (LABEL_0, ...), and the problem: several labels where they are lists, numbers where
// they are not whole. If `known` says Tokens, a list has the labels
// of the words of a record. What `known` has stays. Reads all records. Throws what prepare_data() throws for
// records that cannot be read, and Error(Data, "LABELS") where nothing is found.
Classification find_classes(const config::DataConfig& config, std::optional<ProblemType> known);

}  // namespace tessera::data
