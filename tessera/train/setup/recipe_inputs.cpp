#include "tessera/train/setup/recipe_inputs.h"

#include <set>
#include <string>

#include "tessera/io/file.h"

namespace tessera::train {
namespace {

// Returns the folder in which the files of a pattern lie, or below which they do; any other path as it is.
std::string place_of_pattern(const std::string& path) {
  const size_t wildcard = path.find_first_of("*?[");
  return wildcard == std::string::npos || io::exists(path) ? path
                                                           : io::parent_path(path.substr(0, wildcard) + "x");
}

}  // namespace

std::vector<io::ResultInput> model_inputs(const config::Recipe& recipe) {
  return {{"the base model", recipe.base_model},
          {"the tokenizer", recipe.tokenizer_config},
          {"the adapter to start from", recipe.lora_model_dir}};
}

std::vector<io::ResultInput> recipe_inputs(const config::Recipe& recipe) {
  std::vector<io::ResultInput> inputs = model_inputs(recipe);
  std::set<std::string> recipes = {recipe.source_file};
  for (const auto& [key, place] : recipe.key_places) recipes.insert(place.file);
  for (const std::string& file : recipes) inputs.push_back({"the recipe", file});
  inputs.push_back({"the chat template", recipe.chat_template_jinja});
  inputs.push_back({.what = "the folder of the prepared rows (dataset_prepared_path)",
                    .path = recipe.dataset_prepared_path,
                    .is_made = true});
  for (const auto* datasets : {&recipe.datasets, &recipe.test_datasets}) {
    for (const config::DatasetConfig& dataset : *datasets) {
      const std::string path = place_of_pattern(dataset.path);
      inputs.push_back({"a dataset", path, dataset.data_files.empty() && path == dataset.path});
      inputs.push_back({"the chat template", dataset.chat_template_jinja});
    }
  }
  return inputs;
}

}  // namespace tessera::train
