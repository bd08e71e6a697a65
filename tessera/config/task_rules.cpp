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
  for (size_t i = 0; i < datasets.size(); ++i) {
    const std::string prefix = key + '.' + std::to_string(i) + '.';
    if (!datasets[i].type.empty()) {
      rules.refuse("CONFLICT", {prefix + "type", "task"}, "task: classification reads texts with a label")
          .got("type: " + datasets[i].type)
          .need("no type; field, field_text_pair and field_label name the columns");
    }
    if (!datasets[i].weight_from_step.empty()) {
      rules.refuse("UNSUPPORTED", {prefix + "weight_from_step", "task"},
                   "not supported with task: classification");
    }
  }
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
  if (recipe.task != Task::Classification) {
    const std::pair<const char*, bool> given[] = {{"num_labels", recipe.num_labels > 0},
                                                  {"label_names", !recipe.label_names.empty()},
                                                  {"problem_type", !recipe.problem_type.empty()}};
    for (const auto& [key, is_given] : given) {
      if (is_given)
        rules.refuse("UNSUPPORTED", {key}, "only a classifier has labels").hint("task: classification");
    }
    return;
  }
  validate_labels(rules);
  validate_classified(rules, recipe.datasets, "datasets");
  validate_classified(rules, recipe.test_datasets, "test_datasets");
  if (recipe.streaming)
    rules.refuse("CONFLICT", {"streaming", "task"}, "task: classification needs its rows in advance");
  if (recipe.adapter == AdapterKind::PromptTuning) {
    rules
        .refuse("UNSUPPORTED", {"adapter", "task"},
                "prompt_tuning puts rows before a text, of which a classifier reads its first or last token")
        .hint("adapter: lora trains a classifier with few parameters");
  }
  if (!recipe.rl.empty())
    rules.refuse("CONFLICT", {"rl", "task"}, "task: classification trains on labels, not on preferences");
}

}  // namespace tessera::config
