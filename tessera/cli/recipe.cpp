// The verbs `tessera recipe check`, `convert`, `keys` and `schema`.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/verbs.h"
#include "tessera/config/convert_recipe.h"
#include "tessera/config/json_schema.h"
#include "tessera/config/keys_page.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/config/problems.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/terminal_text.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/prompts/llama_factory.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/models/common/base_model.h"
#include "tessera/train/run/describe_run.h"
#include "tessera/train/run/result_upload.h"
#include "tessera/train/run/run_output.h"
#include "tessera/train/setup/plan_recipe.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/training.h"

namespace tessera::cli {
namespace {

struct CheckOptions {
  std::string recipe, accelerate_config;
  std::vector<std::string> overrides;
  int64_t nproc = 0;
  bool keys_only = false, all = false, rows = false;
};

// Returns the data-parallel ranks that the recipe has on --nproc ranks; 0 where the option is not given.
int64_t data_ranks(const config::Recipe& recipe, int64_t nproc) {
  if (nproc == 0) return 0;
  const ParallelDims dims = train::parallel_dims(recipe, nproc);
  return dims.dp_replicate * dims.dp_shard;
}

std::string describe_batch(const config::Recipe& recipe, int64_t ranks) {
  if (ranks == 0 && recipe.global_batch_size > 0) {
    return "# batch: global_batch_size = " + group_digits(recipe.global_batch_size) +
           " sequences per step, at most " + group_digits(recipe.global_batch_size * recipe.sequence_len) +
           " tokens\n";
  }
  const int64_t rows =
      recipe.micro_batch_size * recipe.gradient_accumulation_steps * std::max<int64_t>(ranks, 1);
  std::string text = "# batch: micro_batch_size " + std::to_string(recipe.micro_batch_size) +
                     " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps);
  if (ranks > 0) text += " x " + std::to_string(ranks) + " data-parallel ranks";
  text +=
      " = " + group_digits(rows) + " sequences per step" + (ranks > 0 ? "" : " on each data-parallel rank");
  return text + ", at most " + group_digits(rows * recipe.sequence_len) + " tokens\n";
}

// Returns what is known of the run's length without the data.
std::string describe_length(const config::Recipe& recipe) {
  if (recipe.max_steps > 0) return "# steps: " + group_digits(recipe.max_steps) + " (max_steps)\n";
  char epochs[32];
  std::snprintf(epochs, sizeof epochs, "%g", recipe.num_epochs);
  return std::string("# steps: as many as num_epochs ") + epochs +
         " requires; --rows reads the data and counts them\n";
}

// Reads and tokenises the data, and returns how many rows, tokens and steps they make on `ranks` ranks.
std::string describe_data(const config::Recipe& recipe, const models::BaseModel& base,
                          std::optional<text::Tokenizer>& tokenizer, int64_t ranks) {
  const data::PreparedData prepared = train::read_recipe_data(recipe, base.config(), tokenizer);
  std::string text;
  if (prepared.eval.size() > 0) text = "# to evaluate: " + train::describe_rows(prepared.eval) + "\n";
  if (recipe.streaming) return text + describe_length(recipe);
  const auto loader = data::open_loader(prepared.train, recipe,
                                        data::train_loader_options(recipe, 0, std::max<int64_t>(ranks, 1)));
  const int64_t steps = train::total_steps_of(recipe, *loader);
  return "# data: " + train::describe_rows(prepared.train) + "\n" + text + "# steps: " + group_digits(steps) +
         ", " + group_digits(loader->steps_per_epoch()) + " an epoch" +
         (ranks > 0 ? "" : " on one data-parallel rank") + "\n";
}

// Makes the checks that a training makes before its first step, in its order, but for those of a checkpoint
// that it would go on from. Returns the summary.
std::string check_run(config::Recipe recipe, const CheckOptions& options) {
  train::device_of(recipe.device, recipe);
  const int64_t ranks = data_ranks(recipe, options.nproc);
  recipe = ranks > 0 ? config::with_accumulation(std::move(recipe), ranks)
                     : config::for_one_reader(std::move(recipe));
  train::check_output(recipe);
  train::check_result_upload(recipe, recipe);
  if (recipe.task != config::Task::RewardModel) data::refuse_unbuilt_objective(recipe);
  train::PlannedRecipe planned = train::plan_recipe(recipe);
  std::optional<text::Tokenizer>& tokenizer = planned.tokenizer;
  if (tokenizer) data::default_chat_template(recipe, *tokenizer);
  for (const config::DatasetConfig& dataset : recipe.datasets)
    data::find_dataset_files(data::resolve_dataset_info(dataset, recipe.source_folder), recipe.source_folder);
  // This finds the files of the split that is evaluated.
  for (const config::DatasetConfig& dataset : recipe.test_datasets)
    data::split_to_evaluate(data::resolve_dataset_info(dataset, recipe.source_folder), recipe.source_folder);
  return describe_batch(recipe, ranks) +
         (options.rows ? describe_data(recipe, planned.base, tokenizer, ranks) : describe_length(recipe));
}

// Returns the lines of the keys whose values are not the defaults.
std::string without_defaults(const config::Recipe& recipe) {
  std::map<std::string, std::string> usual;
  for (auto& [key, value] : config::top_level_values(config::dump_recipe(config::Recipe())))
    usual[key] = value;
  std::set<std::string> others;
  for (const auto& [key, value] : config::top_level_values(config::dump_recipe(recipe))) {
    if (usual[key] != value) others.insert(key);
  }
  std::istringstream lines(config::explain_recipe(recipe));
  std::string out, line;
  for (bool is_shown = false; std::getline(lines, line);) {
    const bool starts_key = !line.empty() && std::string_view(" -#").find(line[0]) == std::string_view::npos;
    if (starts_key) is_shown = others.contains(line.substr(0, line.find(':')));
    // A key of an entry may be at its default too; the line with the dash begins the entry.
    const bool is_inner_default =
        line.starts_with(' ') && line.ends_with("# default") && line.find("- ") == std::string::npos;
    if (is_shown && !is_inner_default) out += line + '\n';
  }
  return out;
}

int check(const CheckOptions& options) {
  const auto load = options.keys_only ? &config::load_recipe_alone : &config::load_recipe;
  const config::Recipe recipe = load(options.recipe, options.overrides, options.accelerate_config);
  if (options.nproc > 0) config::validate_parallelism(recipe, options.nproc);
  if (!options.keys_only) std::cout << text_for(STDOUT_FILENO, check_run(recipe, options));
  std::cout << text_for(STDOUT_FILENO, options.all ? config::explain_recipe(recipe)
                                                   : without_defaults(recipe) +
                                                         "# --all also prints the keys at their defaults\n");
  return 0;
}

void add_check(CLI::App& recipe, CommandLine& line) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* verb = recipe.add_subcommand(
      "check", "Make all checks of a training run, and print the recipe as Tessera understands it");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--accelerate-config", options->accelerate_config,
                   "A configuration file of Accelerate to read in addition to the recipe");
  verb->add_option("--nproc", options->nproc,
                   "Number of ranks of the training run, to check that the recipe fits them")
      ->check(CLI::Range(1, 4096));
  verb->add_flag("--rows", options->rows,
                 "Also read and tokenise the data, and count rows, tokens and steps");
  verb->add_flag("--all", options->all, "Also print the keys at their defaults");
  verb->add_flag("--keys-only", options->keys_only,
                 "Check only the keys, without looking for model, data or adapter");
  verb->footer(
      "The output is a recipe, with comments that say where each value comes from. If training would refuse "
      "the\nrecipe, or output_dir is in use, the exit code is 2, with one line for each problem.");
  line.set_action(*verb, [options] { return check(*options); });
}

void add_convert_recipe(CLI::App& recipe, CommandLine& line) {
  struct Options {
    std::vector<std::string> files;
    std::string arguments;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      recipe.add_subcommand("convert", "Convert configurations of other tools into one recipe, and print it");
  verb->add_option("files", options->files,
                   "Files of Accelerate, DeepSpeed, LLaMA-Factory, Transformers, TRL or Axolotl");
  verb->add_option("--arguments", options->arguments, "A command line: --arguments '--bf16 --lora_r 8'");
  verb->footer(
      "The files must not contradict each other. Required keys that none of them has are comments to be "
      "filled in.\n"
      "tessera recipe convert llama3_lora_sft.yaml zero3.json > recipe.yaml");
  line.set_action(*verb, [options] {
    if (options->files.empty() && options->arguments.empty()) {
      throw Error(ErrorKind::Config, "USAGE", "nothing to convert").need("files, or --arguments");
    }
    std::cout << text_for(STDOUT_FILENO, config::convert_to_recipe(options->files, options->arguments));
    return 0;
  });
}

// Adds a verb that prints a text.
void add_text(CLI::App& recipe, CommandLine& line, const char* name, const char* help,
              std::string (*text)()) {
  line.set_action(*recipe.add_subcommand(name, help), [text] {
    std::cout << text();
    return 0;
  });
}

}  // namespace

void add_recipe(CLI::App& app, CommandLine& line) {
  CLI::App* recipe = app.add_subcommand("recipe", "Check, write and convert recipes");
  recipe->require_subcommand(1);
  add_check(*recipe, line);
  add_recipe_init(*recipe, line);
  add_convert_recipe(*recipe, line);
  add_text(*recipe, line, "keys",
           "Print the reference of all keys, including those of other tools (docs/recipe-keys.md)",
           &config::keys_page);
  add_text(*recipe, line, "schema", "Print the JSON schema of recipes, for editors", &config::json_schema);
}

}  // namespace tessera::cli
