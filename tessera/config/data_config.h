// The keys of a recipe that say which records become which rows. load_recipe() fills them with the rest of
// the recipe. A key marked "ours" is Tessera's own; Axolotl does not have it.
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
  std::string name;      // configuration of a dataset of the hub, or entry of a dataset_info.json
  std::string revision;  // branch, tag or commit of a dataset of the hub; "" = main
  std::string hub_id;    // the name on the hub, if `path` was one; set by load_recipe()
  std::vector<std::string> data_files;  // files below `path`; empty = all
  std::string split;                    // "", "train", "test[:10%]", "train[100:200]"
  std::string field = "text";  // column that `type: completion` reads, and the first text of a classifier
  std::string field_messages = "messages";  // load_recipe() sets "conversations" for sharegpt
  std::string field_system = "system";
  std::string field_instruction = "instruction";
  std::string field_input = "input";
  std::string field_output = "output";
  std::string field_history = "history";  // ours: turns before the instruction, of `type: llama_factory`
  std::string chat_template;              // overrides the recipe's
  std::string chat_template_jinja;
  // How messages spell their fields: {role: from, content: value} for sharegpt.
  std::map<std::string, std::string> message_property_mappings;
  std::map<std::string, std::vector<std::string>> roles;   // spellings of each role: {assistant: [gpt, ...]}
  std::optional<std::vector<std::string>> roles_to_train;  // default [assistant]
  std::string message_field_training;  // name of the per-message boolean that overrides roles_to_train
  std::string train_on_eos = "turn";   // all, turn, last, none
  std::string train_on_eot;            // "" = the value of train_on_eos
  bool drop_system_message = false;
  std::string field_tools = "tools";                 // column with a list of tools, or JSON text of one
  std::string field_thinking = "reasoning_content";  // field of a message with its reasoning
  std::string template_thinking_key = "reasoning_content";  // what the template calls that field
  bool split_thinking = false;  // reasoning between <think> and </think> is taken out of the content
  std::string message_field_training_detail;  // name of a message's list of {begin_offset, end_offset, train}
  // Texts for `type: user_defined`, in which {system}, {instruction} and {input} are filled in.
  std::string system_prompt, system_format = "{system}";
  std::string format = "{instruction} {input} ", no_input_format = "{instruction} ";
  // Columns and texts of preference data.
  std::string field_prompt = "prompt", field_chosen = "chosen", field_rejected = "rejected";
  std::string field_completion = "completion", field_label = "label";
  std::string
      field_text_pair;       // ours: column of the second text of task: classification; "" = as it is there
  std::string field_target;  // ours: column of the target of task: seq2seq; "" = by the names of columns
  std::string prompt_format = "{prompt}", chosen_format = "{chosen}", rejected_format = "{rejected}",
              completion_format = "{completion}";
  std::string step_separator = "\n";  // text that ends a step of `type: stepwise_supervised`
  int64_t skip = 0;                   // records passed over at the start of the dataset
  int64_t shards = 1, shards_idx = 0;
  double weight = 1.0;  // ours: share of the dataset, with mix_strategy or streaming
  // Ours: the dataset's weight from a step (1-based) on, such as {1000: 0.5}.
  std::map<std::string, std::string> weight_from_step;

  // File and line of this entry in the recipe, for errors.
  std::string source_file;
  int64_t source_line = 0;
};

enum class ExcessLength { Drop, Truncate, Raise };

struct DataConfig {
  std::vector<DatasetConfig> datasets;
  std::vector<DatasetConfig> test_datasets;
  double val_set_size = 0.0;  // below 1: share of the rows held out for evaluation; from 1 on: their number
  // Makes rows while the run goes on (data/stream/); `pretraining_dataset` sets it.
  bool streaming = false;
  int64_t streaming_multipack_buffer_size = 10'000;  // documents that are shuffled at a time
  // Keeps attention inside each document of a packed sequence, with streaming and sample_packing.
  bool pretrain_multipack_attn = true;
  int64_t sequence_len = 512;
  int64_t eval_sequence_len = 0;  // longest row of test_datasets, in tokens; 0 = sequence_len
  ExcessLength excess_length_strategy = ExcessLength::Drop;
  int64_t min_sample_len = 2;
  bool train_on_inputs = false;
  // Ours: what is trained where a token holds the end of a prompt and the start of its answer: "whole" (that
  // token too), or "split" (the text is cut there, so that no token holds both).
  std::string answer_border = "whole";
  bool shuffle_merged_datasets = true;
  std::string mix_strategy = "concat";       // concat, interleave_under, interleave_over
  double mix_temperature = 0.0;              // ours: weights x size^(1 / mix_temperature); 0 = weights alone
  bool dataset_exact_deduplication = false;  // rows with the same tokens and labels are taken once
  double dataset_near_deduplication = 0.0;   // ours: share of equal 5-grams that makes rows the same; 0 = off
  std::string dataset_prepared_path;
  std::string on_bad_line = "raise";  // ours: raise or skip
  int64_t max_bad_lines = 100;        // ours: with on_bad_line "skip", more bad lines than this end the run
  // "tokenizer_default" ("" means the same), "tokenizer_default.NAME" for one of the model's named templates,
  // "tokenizer_default_fallback_NAME", "jinja" (chat_template_jinja), or the name of a built-in template
  // (text/chat_template/builtins.h).
  std::string chat_template;
  std::string chat_template_jinja;                          // the template itself, or a file that holds it
  std::map<std::string, std::string> chat_template_kwargs;  // further variables of the template
  // Tokens that end a turn beside EOS; empty = the token that the template writes behind an answer.
  std::vector<std::string> eot_tokens;
  std::string rl;  // dpo, ipo, orpo, kto or simpo, for rows of preferences; "" for text
  // Folder of the recipe; relative paths that do not exist in the current folder start here.
  std::string source_folder;
};

}  // namespace tessera::config
