// Makes rows of an instruction and its answer.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tessera/data/prompts/instruct_formats.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/prompts/text_format.h"

namespace tessera::data {

// A text whose places are filled from a record's columns. The places are those of InstructType.
class ColumnText {
 public:
  ColumnText(std::string_view text, const config::DatasetConfig& dataset);
  // Returns the text for a record. Throws Error(Data) without a place for a column that is missing or of
  // another type.
  std::string read(const nlohmann::ordered_json& record) const;

 private:
  TextFormat format_;
  config::DatasetConfig dataset_;
};

// Prompts of the types of instruct_formats.h, and of type user_defined. The prompt is masked unless
// train_on_inputs is set; the answer is trained, with the EOS behind it. The two become tokens apart, so no
// token reaches over the border. An empty answer has no tokens, and no EOS.
class InstructPrompt : public PromptType {
 public:
  InstructPrompt(const FoundInstructType& found, const config::DatasetConfig& dataset,
                 const PromptContext& context);
  // Makes the prompt of type user_defined.
  InstructPrompt(const config::DatasetConfig& dataset, const PromptContext& context);

  void tokenize(const PromptRecord& record, std::vector<Row>& rows) const override;
  std::vector<int32_t> end_tokens() const override;

  // Returns the texts of a record's prompt and of its answer. Throws Error(Data) as tokenize() does.
  std::pair<std::string, std::string> texts(const nlohmann::ordered_json& record) const;

 private:
  MarkedText prompt_text(const nlohmann::ordered_json& record) const;
  Row tokenize_joined(const PromptRecord& record) const;

  const text::Tokenizer& tokenizer_;
  TextFormat system_format_, turn_, turn_no_input_;
  ColumnText instruction_, input_, output_, system_, system_no_input_;
  int num_eos_ = 1;
  bool joined_ = false, train_on_inputs_ = false, splits_border_ = false;
  bool is_own_ = false;  // type user_defined: system_no_input_ is the text of rows without field_system_
  std::string field_system_;
};

}  // namespace tessera::data
