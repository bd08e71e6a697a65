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
  // A file, a folder, a pattern of files, or a name on the hub; resolved by load_recipe().
  std::string path;
  std::string type;      // alpaca, chat_template, completion, ... (docs/datasets.md); "" = pre-tokenised
  std::string ds_type;   // json, text, csv, parquet or arrow; "" = from the file's name
  std::string name;      // configuration of a dataset of the hub, or which dataset of a dataset_info.json
  std::string revision;  // of a dataset of the hub; "" = main
  std::string hub_id;    // set by load_recipe() where `path` was a name on the hub
  std::vector<std::string> data_files;      // files below `path`; empty = all
  std::string split;                        // "", "train", "test[:10%]", "train[100:200]"
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
  std::string field_tools = "tools";                        // of a record: a list of tools, or JSON text
  std::string field_thinking = "reasoning_content";         // of a message: its reasoning
  std::string template_thinking_key = "reasoning_content";  // and what the template calls that
  bool split_thinking = false;  // reasoning is cut out of the content, between <think> and </think>
  std::string message_field_training_detail;  // name of a message's list of {begin_offset, end_offset, train}
  // Of type user_defined: texts in which {system}, {instruction} and {input} are filled in.
  std::string system_prompt, system_format = "{system}";
  std::string format = "{instruction} {input} ", no_input_format = "{instruction} ";
  // Of preference data.
  std::string field_prompt = "prompt", field_chosen = "chosen", field_rejected = "rejected";
  std::string field_completion = "completion", field_label = "label";
  std::string prompt_format = "{prompt}", chosen_format = "{chosen}", rejected_format = "{rejected}",
              completion_format = "{completion}";
  std::string step_separator = "\n";  // of stepwise_supervised
  int64_t skip = 0;                   // records passed over at the start
  int64_t shards = 1, shards_idx = 0;
  double weight = 1.0;  // ours: of mix_strategy, and of streaming
  // Ours, with streaming: the weight from a step (1-based) on, such as {1000: 0.5}.
  std::map<std::string, std::string> weight_from_step;

  // Where the entry stands in the recipe, for errors.
  std::string source_file;
  int64_t source_line = 0;
};

enum class ExcessLength { Drop, Truncate, Raise };

struct DataConfig {
  std::vector<DatasetConfig> datasets;
  std::vector<DatasetConfig> test_datasets;
  double val_set_size = 0.0;  // below 1: share of the rows; else rows
  // Rows are made while the run goes on (data/stream/); `pretraining_dataset` sets it.
  bool streaming = false;
  int64_t streaming_multipack_buffer_size = 10'000;  // documents that are shuffled at a time
  // With sample_packing, attention of streamed documents stays inside each.
  bool pretrain_multipack_attn = true;
  int64_t sequence_len = 512;
  int64_t eval_sequence_len = 0;  // of test_datasets; 0 = sequence_len
  ExcessLength excess_length_strategy = ExcessLength::Drop;
  int64_t min_sample_len = 2;
  bool train_on_inputs = false;
  bool shuffle_merged_datasets = true;
  std::string mix_strategy = "concat";       // concat, interleave_under, interleave_over
  double mix_temperature = 0.0;              // ours: weights x size^(1 / this); 0 = weights alone
  bool dataset_exact_deduplication = false;  // rows with the same tokens and labels once
  double dataset_near_deduplication = 0.0;   // ours: share in common from which on rows are the same; 0 = off
  std::string dataset_prepared_path;
  std::string on_bad_line = "raise";  // ours: raise or skip
  int64_t max_bad_lines = 100;        // ours: with `skip`, more than these end the run
  // tokenizer_default, chatml, llama3, mistral, alpaca, jinja; "" = tokenizer_default
  std::string chat_template;
  std::string chat_template_jinja;                          // inline template or a file
  std::map<std::string, std::string> chat_template_kwargs;  // further variables of the template
  std::vector<std::string> eot_tokens;  // that end a turn beside EOS; empty = as the template shows
  std::string rl;                       // dpo, ipo, orpo, kto or simpo: the rows are preferences; "" = text
  // The folder that relative dataset paths start from.
  std::string source_folder;
};

}  // namespace tessera::config
