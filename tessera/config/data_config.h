// The keys of a recipe that say which records become which rows. Filled by load_recipe(), as all of the
// recipe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

// One entry of `datasets:` or `test_datasets:`.
struct DatasetConfig {
  std::string path;     // a .json or .jsonl or .txt file, or a folder of them; resolved by load_recipe()
  std::string type;     // alpaca, chat_template, sharegpt, completion; "" = pre-tokenised
  std::string ds_type;  // json or text; "" = from the file's name
  std::vector<std::string> data_files;      // files below `path`; empty = all
  std::string split;                        // "", "train", "train[:10%]", "train[100:200]"
  std::string field = "text";               // column of `completion`
  std::string field_messages = "messages";  // load_recipe() sets "conversations" for sharegpt
  std::string field_system = "system";
  std::string field_instruction = "instruction";
  std::string field_input = "input";
  std::string field_output = "output";
  std::string chat_template;  // overrides the recipe's
  std::string chat_template_jinja;
  std::map<std::string, std::string>
      message_property_mappings;                          // {role: from, content: value}, set so for sharegpt
  std::map<std::string, std::vector<std::string>> roles;  // {assistant: [gpt, ...]}
  std::optional<std::vector<std::string>> roles_to_train;  // default [assistant]
  std::string message_field_training;  // name of the per-message boolean that overrides roles_to_train
  std::string train_on_eos = "turn";   // all, turn, last, none
  std::string train_on_eot;            // "" = as train_on_eos
  bool drop_system_message = false;
  int64_t shards = 1, shards_idx = 0;

  // Where the entry stands in the recipe, for errors.
  std::string source_file;
  int64_t source_line = 0;
};

enum class ExcessLength { Drop, Truncate, Raise };

struct DataConfig {
  std::vector<DatasetConfig> datasets;
  std::vector<DatasetConfig> test_datasets;
  double val_set_size = 0.0;  // below 1: share of the rows; else rows
  int64_t sequence_len = 512;
  ExcessLength excess_length_strategy = ExcessLength::Drop;
  int64_t min_sample_len = 2;
  bool train_on_inputs = false;
  bool shuffle_merged_datasets = true;
  std::string dataset_prepared_path;
  std::string on_bad_line = "raise";  // ours: raise or skip
  int64_t max_bad_lines = 100;        // ours: with `skip`, more than these end the run
  // tokenizer_default, chatml, llama3, mistral, alpaca, jinja; "" = tokenizer_default
  std::string chat_template;
  std::string chat_template_jinja;  // inline template or a file
  // The folder that relative dataset paths start from.
  std::string source_folder;
};

}  // namespace tessera::config
