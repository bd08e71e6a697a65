// The verbs `tessera recipe check`, `convert`, `keys` and `schema`.
#include "tessera/cli/recipe.h"

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/config/convert_recipe.h"
#include "tessera/config/json_schema.h"
#include "tessera/config/keys_page.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/config/problems.h"
#include "tessera/core/error.h"
#include "tessera/core/terminal_text.h"
#include "tessera/models/common/base_model.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/setup.h"

namespace tessera::cli {
namespace {

struct CheckOptions {
  std::string recipe, accelerate_config;
  std::vector<std::string> overrides;
  int64_t nproc = 0;
  bool keys_only = false;
};

// Runs the checks that a training makes before it reads data, in its order.
void check_model(const config::Recipe& recipe) {
  config::Problems problems;
  train::plan_model(recipe, models::BaseModel::open(recipe.base_model), problems);
  train::load_recipe_tokenizer(recipe, problems);
  problems.settle();
}

int check(const CheckOptions& options) {
  const auto load = options.keys_only ? &config::load_recipe_alone : &config::load_recipe;
  const config::Recipe recipe = load(options.recipe, options.overrides, options.accelerate_config);
  if (options.nproc > 0) config::validate_parallelism(recipe, options.nproc);
  if (!options.keys_only) check_model(recipe);
  std::cout << text_for(STDOUT_FILENO, config::explain_recipe(recipe));
  return 0;
}

void add_check(CLI::App& recipe, Action& action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* verb = recipe.add_subcommand("check", "Print the resolved recipe, and where each value is from");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--accelerate-config", options->accelerate_config,
                   "A configuration file of Accelerate that says more than the recipe");
  verb->add_option("--nproc", options->nproc, "Ranks that will train: checks that the recipe fits them")
      ->check(CLI::Range(1, 4096));
  verb->add_flag("--keys-only", options->keys_only, "Look for no model, data or adapter");
  verb->footer(
      "What is printed is a recipe itself. Exit code 2, with a line for everything that is wrong, where\n"
      "training would refuse it.");
  verb->callback([options, &action] { action = [options] { return check(*options); }; });
}

void add_convert_recipe(CLI::App& recipe, Action& action) {
  struct Options {
    std::vector<std::string> files;
    std::string arguments;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = recipe.add_subcommand("convert", "Print one recipe made of other tools' configurations");
  verb->add_option("files", options->files,
                   "Files of Accelerate, DeepSpeed, LLaMA-Factory, Transformers, TRL or Axolotl");
  verb->add_option("--arguments", options->arguments, "A command line: --arguments '--bf16 --lora_r 8'");
  verb->footer(
      "What the files say must agree. Required keys that none has stand in comments, to be filled in.\n"
      "tessera recipe convert llama3_lora_sft.yaml zero3.json > recipe.yaml");
  verb->callback([options, &action] {
    action = [options] {
      if (options->files.empty() && options->arguments.empty()) {
        throw Error(ErrorKind::Config, "USAGE", "nothing to convert").need("files, or --arguments");
      }
      std::cout << text_for(STDOUT_FILENO, config::convert_to_recipe(options->files, options->arguments));
      return 0;
    };
  });
}

// Adds a verb that prints a text.
void add_text(CLI::App& recipe, Action& action, const char* name, const char* help, std::string (*text)()) {
  recipe.add_subcommand(name, help)->callback([text, &action] {
    action = [text] {
      std::cout << text();
      return 0;
    };
  });
}

}  // namespace

void add_recipe(CLI::App& app, Action& action) {
  CLI::App* recipe = app.add_subcommand("recipe", "Check, write and convert recipes");
  recipe->require_subcommand(1);
  add_check(*recipe, action);
  add_recipe_init(*recipe, action);
  add_convert_recipe(*recipe, action);
  add_text(*recipe, action, "keys", "Print what becomes of every key (docs/recipe-keys.md)",
           &config::keys_page);
  add_text(*recipe, action, "schema", "Print the JSON schema of recipes, for editors", &config::json_schema);
}

}  // namespace tessera::cli
