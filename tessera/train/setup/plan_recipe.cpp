#include "tessera/train/setup/plan_recipe.h"

#include "tessera/config/problems.h"
#include "tessera/train/setup/recipe_data.h"

namespace tessera::train {

PlannedRecipe plan_recipe(const config::Recipe& recipe) {
  PlannedRecipe planned{.base = models::BaseModel::open(recipe.base_model)};
  config::Problems problems;
  planned.model = plan_model(recipe, planned.base, problems);
  planned.tokenizer = load_recipe_tokenizer(recipe, problems);
  problems.settle();
  return planned;
}

}  // namespace tessera::train
