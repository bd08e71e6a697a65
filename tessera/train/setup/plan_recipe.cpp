#include "tessera/train/setup/plan_recipe.h"

#include <utility>

#include "tessera/config/problems.h"
#include "tessera/planner/cluster.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::train {

PlannedRecipe plan_recipe(const config::Recipe& recipe) {
  config::Problems problems;
  if (!recipe.cluster.empty()) {
    problems.attempt("cluster", recipe.place_of({"cluster"}), [&] { planner::load_cluster(recipe.cluster); });
  }
  std::optional<text::Tokenizer> tokenizer = load_recipe_tokenizer(recipe, problems);
  PlannedRecipe planned{.base = open_recipe_base(recipe, tokenizer)};
  planned.tokenizer = std::move(tokenizer);
  planned.model = plan_model(recipe, planned.base, problems);
  problems.settle();
  return planned;
}

}  // namespace tessera::train
