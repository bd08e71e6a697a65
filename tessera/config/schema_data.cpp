#include "tessera/config/data_choices.h"
#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kExcessLength[] = {
    {"drop", as_int(ExcessLength::Drop)},
    {"truncate", as_int(ExcessLength::Truncate)},
    {"raise", as_int(ExcessLength::Raise)},
};
constexpr Choice kAnswerBorders[] = {{"whole"}, {"split"}};
constexpr Choice kOnBadLine[] = {{"raise"}, {"skip"}};
constexpr Choice kTrainOn[] = {{"turn"}, {"all"}, {"last"}, {"none"}, {""}};
constexpr Choice kMixStrategies[] = {{"concat"}, {"interleave_under"}, {"interleave_over"}};
constexpr Choice kDsTypes[] = {{"json"}, {"text"}, {"csv"}, {"parquet"}, {"arrow"}};
constexpr Choice kObjectives[] = {
    {""},
    {"dpo"},
    {"ipo"},
    {"orpo"},
    {"kto"},
    {"simpo"},
    {"grpo", kNotBuilt, "training with rewards is not supported yet"},
    {"gdpo", kNotBuilt, "training with rewards is not supported yet"},
    {"ebft", kNotBuilt, "energy-based training is not supported yet"},
};

const Key<Recipe> kKeys[] = {
    {"datasets", &Recipe::datasets},
    {"test_datasets", &Recipe::test_datasets},
    {"rl", &Recipe::rl, 0, 0, kObjectives},
    {"val_set_size", &Recipe::val_set_size, 0, 1e12},
    {"streaming", &Recipe::streaming},
    {"streaming_multipack_buffer_size", &Recipe::streaming_multipack_buffer_size, 1, 1e9},
    {"pretrain_multipack_attn", &Recipe::pretrain_multipack_attn},
    {"sequence_len", &Recipe::sequence_len, 1, kMaxSequence},
    {"eval_sequence_len", &Recipe::eval_sequence_len, 0, kMaxSequence},
    {"excess_length_strategy", enum_field<&Recipe::excess_length_strategy>, 0, 0, kExcessLength},
    {"min_sample_len", &Recipe::min_sample_len, 0, kMaxSequence},
    {"sample_packing", &Recipe::sample_packing},
    {"eval_sample_packing", &Recipe::eval_sample_packing},
    {"sample_packing_sequentially", &Recipe::sample_packing_sequentially},
    {"group_by_length", &Recipe::group_by_length},
    {"train_on_inputs", &Recipe::train_on_inputs},
    {"answer_border", &Recipe::answer_border, 0, 0, kAnswerBorders},
    {"shuffle_merged_datasets", &Recipe::shuffle_merged_datasets},
    {"mix_strategy", &Recipe::mix_strategy, 0, 0, kMixStrategies},
    {"mix_temperature", &Recipe::mix_temperature, 0, 1e6},
    {"dataset_exact_deduplication", &Recipe::dataset_exact_deduplication},
    {"dataset_near_deduplication", &Recipe::dataset_near_deduplication, 0, 1},
    {"dataset_prepared_path", &Recipe::dataset_prepared_path},
    {"on_bad_line", &Recipe::on_bad_line, 0, 0, kOnBadLine},
    {"max_bad_lines", &Recipe::max_bad_lines, 0, 1e12},
};

const Key<DatasetConfig> kDatasetKeys[] = {
    {"path", &DatasetConfig::path},
    {"type", &DatasetConfig::type, 0, 0, kDatasetTypes},
    {"ds_type", &DatasetConfig::ds_type, 0, 0, kDsTypes},
    {"name", &DatasetConfig::name},
    {"revision", &DatasetConfig::revision},
    {"data_files", &DatasetConfig::data_files},
    {"split", &DatasetConfig::split},
    {"field", &DatasetConfig::field},
    {"field_messages", &DatasetConfig::field_messages},
    {"field_system", &DatasetConfig::field_system},
    {"field_instruction", &DatasetConfig::field_instruction},
    {"field_input", &DatasetConfig::field_input},
    {"field_output", &DatasetConfig::field_output},
    {"chat_template", &DatasetConfig::chat_template, 0, 0, kChatTemplates},
    {"chat_template_jinja", &DatasetConfig::chat_template_jinja},
    {"message_property_mappings", &DatasetConfig::message_property_mappings},
    {"roles", &DatasetConfig::roles},
    {"roles_to_train", &DatasetConfig::roles_to_train},
    {"message_field_training", &DatasetConfig::message_field_training},
    {"train_on_eos", &DatasetConfig::train_on_eos, 0, 0, kTrainOn},
    {"train_on_eot", &DatasetConfig::train_on_eot, 0, 0, kTrainOn},
    {"message_field_training_detail", &DatasetConfig::message_field_training_detail},
    {"drop_system_message", &DatasetConfig::drop_system_message},
    {"field_tools", &DatasetConfig::field_tools},
    {"field_history", &DatasetConfig::field_history},
    {"field_thinking", &DatasetConfig::field_thinking},
    {"template_thinking_key", &DatasetConfig::template_thinking_key},
    {"split_thinking", &DatasetConfig::split_thinking},
    {"system_prompt", &DatasetConfig::system_prompt},
    {"system_format", &DatasetConfig::system_format},
    {"format", &DatasetConfig::format},
    {"no_input_format", &DatasetConfig::no_input_format},
    {"field_prompt", &DatasetConfig::field_prompt},
    {"field_chosen", &DatasetConfig::field_chosen},
    {"field_rejected", &DatasetConfig::field_rejected},
    {"field_completion", &DatasetConfig::field_completion},
    {"field_label", &DatasetConfig::field_label},
    {"field_text_pair", &DatasetConfig::field_text_pair},
    {"field_target", &DatasetConfig::field_target},
    {"prompt_format", &DatasetConfig::prompt_format},
    {"chosen_format", &DatasetConfig::chosen_format},
    {"rejected_format", &DatasetConfig::rejected_format},
    {"completion_format", &DatasetConfig::completion_format},
    {"step_separator", &DatasetConfig::step_separator},
    {"weight", &DatasetConfig::weight, 0.0, 1e9},
    {"weight_from_step", &DatasetConfig::weight_from_step},
    {"skip", &DatasetConfig::skip, 0, 1e15},
    {"shards", &DatasetConfig::shards, 1, 1e9},
    {"shards_idx", &DatasetConfig::shards_idx, 0, 1e9},
};

}  // namespace

std::span<const Key<Recipe>> data_keys() { return kKeys; }
std::span<const Key<DatasetConfig>> dataset_keys() { return kDatasetKeys; }

}  // namespace tessera::config
