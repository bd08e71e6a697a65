#include "tessera/train/recipe_data.h"

#include <algorithm>

#include "tessera/core/log.h"
#include "tessera/data/select_chat_template.h"
#include "tessera/io/file.h"

namespace tessera::train {
namespace {

bool is_token_ids(const config::DatasetConfig& dataset) { return dataset.type.empty(); }

std::optional<data::Tokenizer> load_tokenizer(const config::Recipe& recipe) {
  const std::string& folder = recipe.tokenizer_config.empty() ? recipe.base_model : recipe.tokenizer_config;
  if (std::ranges::all_of(recipe.datasets, is_token_ids) &&
      std::ranges::all_of(recipe.test_datasets, is_token_ids) && recipe.special_tokens.empty() &&
      recipe.tokenizer_config.empty() && !io::exists(io::join_path(folder, "tokenizer.json"))) {
    log::warn(folder + " has no tokenizer.json: training on token ids, and no tokenizer is saved");
    return std::nullopt;
  }
  data::Tokenizer tokenizer = data::Tokenizer::from_folder(folder);
  for (const auto& [role, token] : recipe.special_tokens) tokenizer.set_special_token(role, token);
  return tokenizer;
}

}  // namespace

RecipeData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                            int64_t num_threads) {
  RecipeData result;
  result.tokenizer = load_tokenizer(recipe);
  data::PrepareOptions options;
  options.vocab_size = model.vocab_size;
  options.num_threads = num_threads;
  if (!result.tokenizer) {
    result.rows = data::prepare_token_ids(recipe, options);
    return result;
  }
  const auto chat_template = data::recipe_chat_template(recipe, *result.tokenizer);
  result.rows = data::prepare_data(recipe, *result.tokenizer, chat_template.get(), options);
  result.tokenizer->set_chat_template(data::trained_chat_template(recipe, *result.tokenizer));
  return result;
}

}  // namespace tessera::train
