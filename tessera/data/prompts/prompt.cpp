#include "tessera/data/prompts/prompt.h"

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/completion.h"
#include "tessera/data/prompts/document.h"
#include "tessera/data/prompts/input_output.h"
#include "tessera/data/prompts/instruct.h"
#include "tessera/data/prompts/llama_factory.h"
#include "tessera/data/prompts/masked_lm.h"
#include "tessera/data/prompts/preference.h"
#include "tessera/data/prompts/pretokenized.h"
#include "tessera/data/prompts/prompt_completion.h"
#include "tessera/data/prompts/pygmalion.h"
#include "tessera/data/prompts/reward.h"
#include "tessera/data/prompts/seq2seq.h"
#include "tessera/data/prompts/stepwise.h"
#include "tessera/data/prompts/token_classification.h"
#include "tessera/data/prompts/windows.h"

namespace tessera::data {
namespace {

std::unique_ptr<PromptType> make_instruct(const config::DatasetConfig& dataset,
                                          const PromptContext& context) {
  // An entry's `conversation: chatml` arrives here as its chat_template, which the recipe's reader makes of
  // it.
  const bool is_chatml = dataset.type == "alpaca_chat" && dataset.chat_template == "chatml";
  const FoundInstructType found = find_instruct_type(is_chatml ? "alpaca:chatml" : dataset.type);
  if (found.type == nullptr) return nullptr;
  return std::make_unique<InstructPrompt>(found, dataset, context);
}

}  // namespace

std::unique_ptr<PromptType> make_prompt_type(const config::DatasetConfig& dataset,
                                             const PromptContext& context) {
  const std::string& type = dataset.type;
  const bool has_labels = context.classification != nullptr, has_targets = context.seq2seq != nullptr,
             has_masks = context.masked != nullptr;
  if (context.tokenizer == nullptr &&
      (!type.empty() || dataset.ds_type == "text" || has_labels || has_targets || has_masks)) {
    throw Error(ErrorKind::Model, "TOKENIZER", "the model has no tokenizer, but this dataset contains text")
        .at(dataset.source_file, dataset.source_line)
        .got(dataset.path)
        .hint("set tokenizer_config to a folder that has one");
  }
  if (has_labels && context.classification->of_pairs) return std::make_unique<RewardPrompt>(dataset, context);
  if (has_labels && context.classification->classes.of_tokens())
    return std::make_unique<TokenClassificationPrompt>(dataset, context);
  if (has_labels) return std::make_unique<ClassificationPrompt>(dataset, context);
  if (has_targets) return std::make_unique<Seq2SeqPrompt>(dataset, context);
  if (has_masks) return std::make_unique<MaskedLmPrompt>(dataset, context);
  if (!context.config.rl.empty() || is_preference_type(type))
    return std::make_unique<PreferencePrompt>(dataset, context);
  if (auto instruct = make_instruct(dataset, context)) return instruct;
  if (type == "user_defined") return std::make_unique<InstructPrompt>(dataset, context);
  if (type == "chat_template" || type == "sharegpt") return std::make_unique<ChatPrompt>(dataset, context);
  if (type == "prompt_completion") return std::make_unique<PromptCompletion>(dataset, context);
  if (type == "llama_factory") return std::make_unique<LlamaFactoryPrompt>(dataset, context);
  if (type == "completion") return std::make_unique<CompletionPrompt>(dataset, context);
  if (type == "pretrain" && context.config.streaming)
    return std::make_unique<DocumentPrompt>(dataset, context);
  if (type == "pretrain") return std::make_unique<PretrainPrompt>(dataset, context);
  if (type == "input_output") return std::make_unique<InputOutputPrompt>(dataset, context);
  if (type == "pygmalion") return std::make_unique<PygmalionPrompt>(context);
  if (type == "stepwise_supervised") return std::make_unique<StepwisePrompt>(dataset, context);
  if (type.empty() && dataset.ds_type == "text") return std::make_unique<CompletionPrompt>(dataset, context);
  if (type.empty()) return std::make_unique<PretokenizedPrompt>(dataset, context);
  const std::string near = nearest_name(type, prompt_type_names());
  throw Error(ErrorKind::Config, "DATASET-TYPE", "unknown dataset type '" + type + "'")
      .at(dataset.source_file, dataset.source_line)
      .need(join(prompt_type_names(), ", ") + ", or blank for tokenised rows")
      .hint(near.empty() ? "" : "did you mean '" + near + "'?");
}

std::vector<std::string> prompt_type_names() {
  std::vector<std::string> names;
  for (const InstructType& type : instruct_types()) names.emplace_back(type.name);
  for (const char* name : {"chat_template", "sharegpt", "llama_factory", "prompt_completion", "completion",
                           "pretrain", "input_output", "pygmalion", "stepwise_supervised", "user_defined"}) {
    names.emplace_back(name);
  }
  return names;
}

bool uses_chat_template(const config::DatasetConfig& dataset) {
  const std::string& type = dataset.type;
  return type == "chat_template" || type == "sharegpt" || type == "llama_factory" ||
         type == "prompt_completion" || type.starts_with("chat_template.") ||
         type.starts_with("bradley_terry.");
}

void refuse_unbuilt_objective(const config::DataConfig& config) {
  for (const auto* list : {&config.datasets, &config.test_datasets}) {
    for (const config::DatasetConfig& dataset : *list) {
      const bool is_stepwise = dataset.type == "stepwise_supervised";
      if (config.rl.empty() && !is_stepwise && !is_preference_type(dataset.type)) continue;
      throw Error(ErrorKind::Config, "UNSUPPORTED",
                  is_stepwise ? "training a reward model on steps is not supported yet"
                              : "training on preferences is not supported yet")
          .at(dataset.source_file, dataset.source_line)
          .got(config.rl.empty() ? "type: " + dataset.type : "rl: " + config.rl)
          .hint("`tessera data show` reads and checks these rows");
    }
  }
}

}  // namespace tessera::data
