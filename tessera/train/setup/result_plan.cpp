#include "tessera/train/setup/result_plan.h"

#include <filesystem>
#include <string>
#include <utility>

#include "tessera/checkpoint/special_tokens.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {

std::optional<DType> saved_dtype(const ModelSetup& setup, const config::Recipe& recipe) {
  switch (recipe.save_dtype) {
    case config::SaveType::Float32: return DType::F32;
    case config::SaveType::BFloat16: return DType::BF16;
    case config::SaveType::Float16: return DType::F16;
    case config::SaveType::OfBase: break;
  }
  const bool is_narrow = setup.base_dtype == DType::BF16 || setup.base_dtype == DType::F16;
  if ((setup.adapter && !recipe.relora) || !is_narrow || run_types(recipe).stored == at::kDouble)
    return std::nullopt;
  return setup.base_dtype;
}

namespace {

// Returns the ids of the special tokens that the recipe chose: those that it names, and with tokenizer_config
// all of that tokenizer.
checkpoint::SpecialTokenIds chosen_tokens(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  checkpoint::SpecialTokenIds ids = checkpoint::special_token_ids(tokenizer);
  if (!recipe.tokenizer_config.empty()) return ids;
  if (!recipe.special_tokens.contains("bos_token")) ids.bos.reset();
  if (!recipe.special_tokens.contains("eos_token")) ids.eos.reset();
  if (!recipe.special_tokens.contains("pad_token")) ids.pad.reset();
  return ids;
}

}  // namespace

checkpoint::FolderPlan result_folder(const ModelSetup& trained, const config::Recipe& recipe,
                                     const checkpoint::BaseFiles& base,
                                     const std::optional<text::Tokenizer>& tokenizer) {
  checkpoint::FolderPlan plan;
  if (trained.adapter && !recipe.relora) {
    const std::string base_model = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
    plan =
        peft::adapter_folder(trained.saved, trained.adapter->options, trained.adapter->targets, base_model);
    // It tells the labels, of which an adapter says nothing.
    if (trained.model->config().classification) plan.files.emplace_back("config.json", base.config);
  } else {
    const auto files =
        tokenizer ? checkpoint::with_special_tokens(base, chosen_tokens(recipe, *tokenizer)) : base;
    plan = checkpoint::model_folder(trained.saved, files, to_dtype(run_types(recipe).stored), trained.whole);
  }
  const std::optional<DType> dtype = saved_dtype(trained, recipe);
  return dtype ? checkpoint::with_dtype(std::move(plan), *dtype) : plan;
}

}  // namespace tessera::train
