#include "tessera/train/recipe_data.h"

#include <algorithm>

#include "tessera/core/content_hash.h"
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

// Of the files that decide how text becomes ids.
std::string tokenizer_fingerprint(const config::Recipe& recipe) {
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  const std::string& folder = recipe.tokenizer_config.empty() ? recipe.base_model : recipe.tokenizer_config;
  ContentHash hash;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "chat_template.jinja", "config.json"}) {
    const std::string path = io::join_path(folder, name);
    hash.add(name);
    if (io::exists(path)) hash.add(io::read_file(path, kMaxBytes));
  }
  for (const auto& [role, token] : recipe.special_tokens) hash.add(role + ' ' + token);
  return std::to_string(hash.value());
}

}  // namespace

RecipeData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                            int64_t num_threads) {
  RecipeData result;
  result.tokenizer = load_tokenizer(recipe);
  data::PrepareOptions options;
  options.vocab_size = model.vocab_size;
  options.num_threads = num_threads;
  if (!recipe.dataset_prepared_path.empty()) options.tokenizer_fingerprint = tokenizer_fingerprint(recipe);
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
