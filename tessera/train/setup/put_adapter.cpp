#include "tessera/train/setup/put_adapter.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/models/common/load.h"
#include "tessera/models/common/quantize_layers.h"
#include "tessera/train/setup/adapter_options.h"
#include "tessera/train/setup/continued_adapter.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::train {
namespace {

// Lists the modules that the adapter trains whole: the recipe's, and as PEFT has it the head of a classifier,
// with what the files lack of it.
std::vector<std::string> saved_modules(const config::Recipe& recipe, const models::Assembly& assembly) {
  std::vector<std::string> saved = recipe.lora_modules_to_save;
  if (!config::has_classifier(recipe.task) || !recipe.lora_model_dir.empty()) return saved;
  for (const std::string& module : models::head_modules(*assembly.model(), assembly.base_files().get())) {
    if (std::ranges::count(saved, module) == 0) saved.push_back(module);
  }
  return saved;
}

models::QuantizeOptions quantize_options(const config::Recipe& recipe,
                                         const std::vector<std::string>& saved_modules) {
  using Kind = models::QuantizeOptions::Kind;
  models::QuantizeOptions options;
  options.kind = recipe.load_in_4bit ? Kind::FourBit : recipe.load_in_8bit ? Kind::EightBit : Kind::None;
  if (recipe.bnb_4bit_quant_type == config::FourBitType::Fp4) options.four_bit = io::BlockKind::Fp4;
  options.double_quantization = recipe.bnb_4bit_use_double_quant;
  options.skipped = recipe.llm_int8_skip_modules;
  options.skipped.insert(options.skipped.end(), saved_modules.begin(), saved_modules.end());
  options.experts = recipe.quantize_moe_experts;
  options.tensor_parallel_size = recipe.tensor_parallel_size;
  return options;
}

// Refuses a start that compares the weights before and after quantisation where the files hold the latter
// alone.
void check_start(const config::Recipe& recipe, const checkpoint::StoredTensors* files,
                 config::Problems& problems) {
  const char* const key = "peft_init_lora_weights";
  if (recipe.peft_init_lora_weights != "loftq" || files == nullptr || !models::holds_blocks(*files)) return;
  problems.add(key, recipe.place_of({key}),
               recipe
                   .error("LORA",
                          "LoftQ needs the weights from before quantisation, and the base's files hold "
                          "quantised ones",
                          {key})
                   .got("loftq")
                   .hint("write peft_init_lora_weights: true, or take the model that this one was made of"));
}

// Finds the tokens whose embeddings a prompt begins with: those of its text, again and again.
void set_prompt_ids(peft::PromptOptions& prompt, const config::Recipe& recipe, config::Problems& problems) {
  const auto tokenizer = load_recipe_tokenizer(recipe, problems);
  std::vector<int32_t> ids;
  if (tokenizer) ids = tokenizer->encode(prompt.init_text, {.add_special_tokens = true});
  if (ids.empty()) {
    const char* const key = "prompt_tuning_init_text";
    problems.add(
        key, recipe.place_of({key}),
        recipe.error("PROMPT", tokenizer ? "the text has no tokens" : "no tokenizer reads the text", {key}));
    return;
  }
  for (int64_t i = 0; i < prompt.num_virtual_tokens; ++i)
    prompt.init_ids.push_back(ids[static_cast<size_t>(i) % ids.size()]);
}

}  // namespace

AdapterSetup put_adapter(models::Assembly& assembly, const config::Recipe& recipe,
                         config::Problems& problems) {
  const std::vector<std::string> saved = saved_modules(recipe, assembly);
  try {
    assembly.quantize(quantize_options(recipe, saved));
  } catch (Error& error) {
    throw error.at(recipe.place_of({"tensor_parallel_size"}));
  }
  check_start(recipe, assembly.base_files().get(), problems);
  AdapterSetup adapter;
  if (recipe.lora_model_dir.empty()) {
    adapter.options = adapter_options(recipe);
    adapter.options.modules_to_save = saved;
    if (!adapter.options.prompt.init_text.empty()) set_prompt_ids(adapter.options.prompt, recipe, problems);
    attempt_targets(recipe, problems, [&] { adapter.targets = assembly.put_new_adapter(adapter.options); });
    return adapter;
  }
  auto continued = models::AdapterFolder::open(recipe.lora_model_dir);
  check_continued(recipe, *assembly.model(), continued.config, problems);
  adapter.options = continued.config.options;
  adapter.options.dropout = recipe.lora_dropout;
  adapter.options.is_of_classifier = config::has_classifier(recipe.task);
  adapter.options.is_of_tokens = recipe.task == config::Task::TokenClassification;
  adapter.options.is_seq2seq = recipe.task == config::Task::Seq2Seq;
  adapter.options.is_masked_lm = recipe.task == config::Task::MaskedLm;
  continued.config.options = adapter.options;
  adapter.targets = assembly.put_adapter(continued);
  return adapter;
}

}  // namespace tessera::train
