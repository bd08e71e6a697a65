// The tokenised rows of a recipe, and the tokenizer that made them.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/config/recipe.h"
#include "tessera/data/prepare.h"
#include "tessera/models/common/model_config.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::train {

struct RecipeData {
  // With the chat template that was trained with. None where the model has none and every dataset is token
  // ids.
  std::optional<text::Tokenizer> tokenizer;
  data::PreparedData rows;
};

// Loads the tokenizer with the recipe's special tokens, chooses the chat template, and tokenises every
// dataset on `num_threads` threads (0 = one a core). `model`: the config of the recipe's base_model. `now`:
// PrepareOptions::now. Not collective. Throws what Tokenizer::from_folder(), default_chat_template() and
// prepare_data() throw.
RecipeData read_recipe_data(const config::Recipe& recipe, const models::ModelConfig& model,
                            int64_t num_threads = 0, std::optional<int64_t> now = std::nullopt);

}  // namespace tessera::train
