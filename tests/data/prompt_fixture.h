// The small tokenizer of the prompt tests, and datasets made from JSON.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/config/data_config.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/text/tokenizer/tokenizer.h"

#include "tests/testing/paths.h"

namespace tessera::data {

using Json = nlohmann::ordered_json;

inline std::string prompt_reference_folder() {
  return testing::source_folder() + "/tests/reference/data/prompts";
}

inline const text::Tokenizer& small_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_folder(prompt_reference_folder());
  return tokenizer;
}

inline config::DatasetConfig dataset_of(const Json& keys) {
  config::DatasetConfig dataset;
  dataset.source_file = "r.yaml";
  dataset.source_line = 7;
  for (const auto& [key, value] : keys.items()) {
    if (key == "path")
      dataset.path = value;
    else if (key == "type")
      dataset.type = value;
    else if (key == "split")
      dataset.split = value;
    else if (key == "field")
      dataset.field = value;
    else if (key == "field_instruction")
      dataset.field_instruction = value;
    else if (key == "field_output")
      dataset.field_output = value;
    else if (key == "field_messages")
      dataset.field_messages = value;
    else if (key == "chat_template")
      dataset.chat_template = value;
    else if (key == "chat_template_jinja")
      dataset.chat_template_jinja = value;
    else if (key == "message_property_mappings")
      dataset.message_property_mappings = value;
    else if (key == "message_field_training")
      dataset.message_field_training = value;
    else if (key == "roles")
      dataset.roles = value;
    else if (key == "roles_to_train")
      dataset.roles_to_train = value.get<std::vector<std::string>>();
    else if (key == "train_on_eos")
      dataset.train_on_eos = value;
    else if (key == "train_on_eot")
      dataset.train_on_eot = value;
    else if (key == "drop_system_message")
      dataset.drop_system_message = value;
    else if (key == "field_input")
      dataset.field_input = value;
    else if (key == "field_system")
      dataset.field_system = value;
    else if (key == "field_thinking")
      dataset.field_thinking = value;
    else if (key == "split_thinking")
      dataset.split_thinking = value;
    else if (key == "message_field_training_detail")
      dataset.message_field_training_detail = value;
    else if (key == "system_prompt")
      dataset.system_prompt = value;
    else if (key == "system_format")
      dataset.system_format = value;
    else if (key == "format")
      dataset.format = value;
    else if (key == "no_input_format")
      dataset.no_input_format = value;
    else if (key == "field_prompt")
      dataset.field_prompt = value;
    else if (key == "prompt_format")
      dataset.prompt_format = value;
    else if (key == "field_completion")
      dataset.field_completion = value;
    else if (key == "name")
      dataset.name = value;
    else
      throw std::runtime_error("unknown dataset key " + key);
  }
  return dataset;
}

inline std::vector<Row> tokenize_record(const Json& dataset_keys, const Json& record,
                                        const config::DataConfig& config = {}, RecordNotes* notes = nullptr) {
  const config::DatasetConfig dataset = dataset_of(dataset_keys);
  const PromptContext context{config, &small_tokenizer(), nullptr, 0};
  std::vector<Row> rows;
  make_prompt_type(dataset, context)->tokenize({record, true, true, notes}, rows);
  return rows;
}

// Returns the texts of the row's trained stretches.
inline std::vector<std::string> trained_texts(const Row& row) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < row.labels.size(); ++i) {
    if (row.labels[i] == kIgnoreLabel) continue;
    if (i == 0 || row.labels[i - 1] == kIgnoreLabel) texts.emplace_back();
    texts.back() += small_tokenizer().token_bytes(row.labels[i]);
  }
  return texts;
}

}  // namespace tessera::data
