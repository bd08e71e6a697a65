#include <string>
#include <utility>

#include "tessera/config/rules.h"

namespace tessera::config {
namespace {

void validate_labels(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto names = std::ssize(recipe.label_names);
  if (recipe.num_labels > 0 && names > 0 && names != recipe.num_labels) {
    rules
        .refuse_text("CONFLICT", {"num_labels", "label_names"},
                     "keys 'num_labels' and 'label_names' do not agree")
        .got(std::to_string(recipe.num_labels) + " and " + std::to_string(names) + " names")
        .hint("leave out num_labels");
  }
  for (size_t i = 0; i < recipe.label_names.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (recipe.label_names[i] != recipe.label_names[j]) continue;
      rules.refuse("VALUE", {"label_names"}, "a name stands twice").got(recipe.label_names[i]);
      return;
    }
  }
}

void validate_classified(Rules& rules, const std::vector<DatasetConfig>& datasets, const std::string& key) {
  const Task task = rules.recipe().task;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string prefix = key + '.' + std::to_string(i) + '.';
    // Rewards are learned from the types of preferences, too (data/prompts/reward.h).
    if (!datasets[i].type.empty() && task != Task::RewardModel) {
      const bool of_tokens = task == Task::TokenClassification;
      rules
          .refuse("CONFLICT", {prefix + "type", "task"},
                  of_tokens ? "task: token_classification reads words with a label each"
                            : "task: classification reads texts with a label")
          .got("type: " + datasets[i].type)
          .need(of_tokens ? "no type; field and field_label name the columns"
                          : "no type; field, field_text_pair and field_label name the columns");
    }
    if (!datasets[i].weight_from_step.empty())
      rules.refuse("UNSUPPORTED", {prefix + "weight_from_step", "task"}, "not supported with a classifier");
  }
}

void validate_classifier(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  validate_labels(rules);
  validate_classified(rules, recipe.datasets, "datasets");
  validate_classified(rules, recipe.test_datasets, "test_datasets");
  if (recipe.streaming)
    rules.refuse("CONFLICT", {"streaming", "task"}, "a classifier needs its rows in advance");
  if (recipe.adapter == AdapterKind::PromptTuning) {
    rules
        .refuse("UNSUPPORTED", {"adapter", "task"},
                "prompt_tuning puts rows before a text, which a classifier would read, too")
        .hint("adapter: lora trains a classifier with few parameters");
  }
  if (!recipe.rl.empty()) {
    rules.refuse("CONFLICT", {"rl", "task"},
                 recipe.task == Task::RewardModel
                     ? "task: reward_model has an objective of its own: leave out rl"
                     : "a classifier trains on labels, not on preferences");
  }
  if (recipe.task == Task::RewardModel && (recipe.num_labels > 1 || recipe.label_names.size() > 1))
    rules.refuse("CONFLICT", {"num_labels", "label_names", "task"}, "a reward is one number").need("1");
  if (recipe.task == Task::RewardModel && recipe.excess_length_strategy == ExcessLength::Truncate) {
    rules
        .refuse("CONFLICT", {"excess_length_strategy", "task"},
                "a text that has lost its end would have the reward of another one")
        .got("truncate")
        .need("drop or raise; sequence_len holds both texts of a pair");
  }
  if (recipe.task != Task::Classification && !recipe.problem_type.empty())
    rules.refuse("CONFLICT", {"problem_type", "task"}, "only task: classification has several problems");
}

// Refuses the keys of a task that the recipe does not have.
void refuse_keys_of_other_tasks(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto refuse = [&](bool is_given, const char* key, const char* reason, const char* task) {
    if (is_given) rules.refuse("UNSUPPORTED", {key}, reason).hint(std::string("task: ") + task);
  };
  if (!has_classifier(recipe.task)) {
    constexpr const char* kLabels = "only a classifier has labels";
    refuse(recipe.num_labels > 0, "num_labels", kLabels, "classification");
    refuse(!recipe.label_names.empty(), "label_names", kLabels, "classification");
    refuse(!recipe.problem_type.empty(), "problem_type", kLabels, "classification");
  }
  if (recipe.task != Task::TokenClassification)
    refuse(recipe.label_all_tokens, "label_all_tokens", "only a classifier of tokens labels words",
           "token_classification");
  if (recipe.task != Task::RewardModel)
    refuse(recipe.center_rewards_coefficient > 0.0, "center_rewards_coefficient",
           "only a reward model has rewards", "reward_model");
}

void validate_target_fields(Rules& rules, const std::vector<DatasetConfig>& datasets,
                            const std::string& key) {
  const bool has_targets = rules.recipe().task == Task::Seq2Seq;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string prefix = key + '.' + std::to_string(i) + '.';
    if (!has_targets && !datasets[i].field_target.empty()) {
      rules.refuse("UNSUPPORTED", {prefix + "field_target"}, "only an encoder-decoder has targets")
          .hint("task: seq2seq");
    }
  }
}

void validate_seq2seq(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto refuse = [&](bool is_given, const char* key, const char* reason) {
    if (is_given) rules.refuse("CONFLICT", {key, "task"}, reason);
  };
  refuse(recipe.streaming, "streaming", "task: seq2seq needs its rows in advance");
  refuse(!recipe.rl.empty(), "rl", "task: seq2seq trains on targets, not on preferences");
  refuse(recipe.train_on_inputs, "train_on_inputs",
         "an encoder-decoder reads its sources and predicts targets alone");
  refuse(recipe.neftune_noise_alpha > 0.0, "neftune_noise_alpha",
         "not supported with task: seq2seq, whose sources and targets would need noise by their own lengths");
  refuse(recipe.adapter == AdapterKind::PromptTuning, "adapter",
         "prompt_tuning puts rows before one text, and a row of task: seq2seq has two");
}

// Rows are plain texts: those of pre-training, or entries that do not say what they are.
void validate_plain_texts(Rules& rules, const std::vector<DatasetConfig>& datasets, const std::string& key) {
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string& type = datasets[i].type;
    if (type.empty() || type == "completion" || type == "pretrain") continue;
    rules
        .refuse("CONFLICT", {key + '.' + std::to_string(i) + ".type", "task"},
                "task: masked_lm reads plain texts")
        .got("type: " + type)
        .need("no type, completion or pretrain; field names the column");
  }
}

void validate_masks(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto refuse = [&](bool is_given, const char* key, const char* reason) {
    if (is_given) rules.refuse("CONFLICT", {key, "task"}, reason);
  };
  validate_plain_texts(rules, recipe.datasets, "datasets");
  validate_plain_texts(rules, recipe.test_datasets, "test_datasets");
  refuse(recipe.streaming, "streaming", "task: masked_lm needs its rows in advance: name them in datasets");
  refuse(!recipe.rl.empty(), "rl", "task: masked_lm trains on masked tokens, not on preferences");
  refuse(recipe.adapter == AdapterKind::PromptTuning, "adapter",
         "prompt_tuning puts rows before a text, for which PEFT has no masked language models");
  if (recipe.mask_replace_prob + recipe.random_replace_prob > 1.0) {
    rules
        .refuse_text("CONFLICT", {"mask_replace_prob", "random_replace_prob"},
                     "keys 'mask_replace_prob' and 'random_replace_prob' add up to more than 1")
        .got(std::to_string(recipe.mask_replace_prob + recipe.random_replace_prob))
        .need("shares of the masked tokens");
  }
}

void refuse_masks(Rules& rules) {
  const TaskConfig& recipe = rules.recipe();
  const TaskConfig usual;
  const std::pair<const char*, bool> given[] = {
      {"mlm_probability", recipe.mlm_probability != usual.mlm_probability},
      {"mask_replace_prob", recipe.mask_replace_prob != usual.mask_replace_prob},
      {"random_replace_prob", recipe.random_replace_prob != usual.random_replace_prob},
      {"whole_word_mask", recipe.whole_word_mask}};
  for (const auto& [key, is_given] : given) {
    if (is_given)
      rules.refuse("UNSUPPORTED", {key}, "only a masked language model has masks").hint("task: masked_lm");
  }
}

}  // namespace

void validate_task(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  validate_target_fields(rules, recipe.datasets, "datasets");
  validate_target_fields(rules, recipe.test_datasets, "test_datasets");
  if (recipe.task == Task::Seq2Seq) validate_seq2seq(rules);
  recipe.task == Task::MaskedLm ? validate_masks(rules) : refuse_masks(rules);
  refuse_keys_of_other_tasks(rules);
  if (has_classifier(recipe.task)) validate_classifier(rules);
}

}  // namespace tessera::config
