#include "tessera/config/data_choices.h"
#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kTasks[] = {
    {"causal_lm", as_int(Task::CausalLm)},
    {"classification", as_int(Task::Classification)},
    {"sequence_classification", as_int(Task::Classification)},
    {"seq2seq", as_int(Task::Seq2Seq)},
    {"seq2seq_lm", as_int(Task::Seq2Seq)},
    {"token_classification", as_int(Task::TokenClassification)},
    {"masked_lm", as_int(Task::MaskedLm)},
    {"reward_model", as_int(Task::RewardModel)},
};
constexpr Choice kProblemTypes[] = {
    {"single_label_classification"}, {"multi_label_classification"}, {"regression"}, {""}};
constexpr Choice kSpecialTokens[] = {
    {"pad_token"},
    {"bos_token"},
    {"eos_token"},
    {"unk_token"},
};

const Key<Recipe> kKeys[] = {
    {"base_model", &Recipe::base_model},
    {"tokenizer_config", &Recipe::tokenizer_config},
    {"chat_template", &Recipe::chat_template, 0, 0, kChatTemplates},
    {"chat_template_jinja", &Recipe::chat_template_jinja},
    {"chat_template_kwargs", &Recipe::chat_template_kwargs},
    {"eot_tokens", &Recipe::eot_tokens},
    {"special_tokens", &Recipe::special_tokens, 0, 0, kSpecialTokens},
    {"added_tokens_overrides", &Recipe::added_tokens_overrides},
    {"additional_special_tokens", &Recipe::additional_special_tokens},
    {"tokens", &Recipe::tokens},
    {"resize_token_embeddings_to_32x", &Recipe::resize_token_embeddings_to_32x},
    {"mean_resizing_embeddings", &Recipe::mean_resizing_embeddings},
    {"shrink_embeddings", &Recipe::shrink_embeddings},
    {"revision_of_model", &Recipe::revision_of_model},
    {"random_init", &Recipe::random_init},
    {"model_config", &Recipe::model_config},
    {"task", enum_field<&Recipe::task>, 0, 0, kTasks},
    {"num_labels", &Recipe::num_labels, 0, 1 << 20},
    {"label_names", &Recipe::label_names},
    {"problem_type", &Recipe::problem_type, 0, 0, kProblemTypes},
    {"mlm_probability", &Recipe::mlm_probability, kTiny, 1},
    {"mask_replace_prob", &Recipe::mask_replace_prob, 0, 1},
    {"random_replace_prob", &Recipe::random_replace_prob, 0, 1},
    {"whole_word_mask", &Recipe::whole_word_mask},
    {"label_all_tokens", &Recipe::label_all_tokens},
    {"center_rewards_coefficient", &Recipe::center_rewards_coefficient, 0, 1e6},
};

}  // namespace

std::span<const Key<Recipe>> model_keys() { return kKeys; }

}  // namespace tessera::config
