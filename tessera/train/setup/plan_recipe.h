// Model and tokenizer of a recipe, checked before any data are read.
#pragma once

#include <optional>

#include "tessera/config/recipe.h"
#include "tessera/models/common/base_model.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/setup/plan_model.h"

namespace tessera::train {

struct PlannedRecipe {
  models::BaseModel base;
  PlannedModel model;
  std::optional<text::Tokenizer> tokenizer;  // nothing where every dataset is token ids
};

// Loads the tokenizer (load_recipe_tokenizer()), opens base_model with a vocabulary for it
// (open_recipe_base()) and plans the model (plan_model()). What is
// wrong with the recipe is told at once. Not collective.
PlannedRecipe plan_recipe(const config::Recipe& recipe);

}  // namespace tessera::train
