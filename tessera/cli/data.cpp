// The verbs `tessera data show` and `tessera data prepare`.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/core/terminal_text.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/show.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/train/setup/plan_recipe.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/recipe_inputs.h"

namespace tessera::cli {
namespace {

// Number of sequences of a stream that `data show` looks at.
constexpr int64_t kShownOfAStream = 100;

constexpr const char* kAccelerateHelp =
    "A configuration file of Accelerate to read in addition to the recipe";

struct RecipeRows {
  config::Recipe recipe;
  std::optional<text::Tokenizer> tokenizer;
  data::PreparedData rows;
};

// Runs the checks of a training, in its order, and reads the rows; of a stream, the first `num_streamed`
// sequences.
RecipeRows read_rows(config::Recipe recipe, int64_t nproc, int64_t num_streamed) {
  RecipeRows out;
  out.recipe = std::move(recipe);
  if (nproc > 0) config::validate_parallelism(out.recipe, nproc);
  out.recipe = config::for_one_reader(std::move(out.recipe));  // which looks at the steps of all ranks
  train::PlannedRecipe planned = train::plan_recipe(out.recipe);
  const models::ModelConfig& model = planned.base.config();
  out.tokenizer = std::move(planned.tokenizer);
  out.rows = train::read_recipe_data(out.recipe, model, out.tokenizer);
  if (out.recipe.streaming && num_streamed > 0) {
    const data::PreparedData rows = std::move(out.rows);
    out.rows = train::open_recipe_stream(out.recipe, model, out.tokenizer, 0, 1, 0, std::nullopt)
                   ->sample(num_streamed);
    if (rows.eval.size() > 0) {
      out.rows.eval = rows.eval;
      out.rows.eval_stats = rows.eval_stats;
    }
  }
  return out;
}

void add_prepare(CLI::App& data, CommandLine& line) {
  struct Options {
    std::string recipe, accelerate_config;
    std::vector<std::string> overrides;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      data.add_subcommand("prepare", "Prepare the rows of a recipe and store them in dataset_prepared_path");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--accelerate-config", options->accelerate_config, kAccelerateHelp);
  line.set_action(*verb, [options] {
    config::Recipe recipe =
        config::load_recipe(options->recipe, options->overrides, options->accelerate_config);
    if (recipe.dataset_prepared_path.empty()) {
      throw Error(ErrorKind::Config, "PREPARED-PATH", "dataset_prepared_path is the folder for prepared rows")
          .at(options->recipe)
          .got("nothing")
          .need("a folder")
          .hint("tessera data prepare " + options->recipe + " dataset_prepared_path=prepared");
    }
    if (recipe.streaming && recipe.test_datasets.empty()) {
      throw Error(ErrorKind::Config, "STREAMING", "nothing to prepare: the datasets are streamed")
          .at(options->recipe)
          .hint(
              "set streaming=false to prepare them; with streaming, tessera train makes rows while it runs");
    }
    const RecipeRows made = read_rows(std::move(recipe), 0, 0);
    // Making the loaders packs the rows, and their packing is kept too.
    if (made.rows.train.size() > 0)
      data::open_loader(made.rows.train, made.recipe, data::train_loader_options(made.recipe, 0, 1));
    if (made.rows.eval.size() > 0)
      const data::Loader packed(made.rows.eval, data::eval_loader_options(made.recipe, 0, 1));
    for (const auto* list : {&made.rows.train_stats, &made.rows.eval_stats}) {
      for (const data::DatasetStats& stats : *list) {
        std::cout << text_for(STDOUT_FILENO, stats.path) << ": " << stats.rows << " rows of " << stats.tokens
                  << " tokens, " << stats.label_tokens << " trained, from " << stats.records << " records\n";
      }
    }
    std::cout << "kept in " << text_for(STDOUT_FILENO, made.recipe.dataset_prepared_path) << '\n';
    return 0;
  });
}

struct ShowArguments {
  std::string recipe, accelerate_config, html;
  std::vector<std::string> overrides;
  data::ShowOptions show;
  bool no_color = false, overwrite = false;
  CLI::Option* num_rows = nullptr;
  int64_t nproc = 0;

  bool has_page() const { return !html.empty(); }
};

// Returns how rows of the recipe are shown.
data::ShowOptions show_options(const ShowArguments& arguments, const config::Recipe& recipe,
                               const data::PreparedData& rows) {
  data::ShowOptions show = arguments.show;
  show.color = !arguments.no_color && isatty(STDOUT_FILENO) != 0;
  show.train = data::train_loader_options(recipe, 0, 1);
  show.has_epochs = !recipe.streaming && !data::has_curriculum(recipe);
  show.eval = data::eval_loader_options(recipe, 0, 1);
  if (arguments.has_page() && arguments.num_rows->count() == 0) show.num_rows = 50;
  if (data::has_curriculum(recipe) && !recipe.streaming)
    show.drawn = data::CurriculumLoader(rows.train, recipe, show.train).sample(show.num_rows);
  return show;
}

int show_rows(const ShowArguments& arguments) {
  config::Recipe loaded =
      config::load_recipe(arguments.recipe, arguments.overrides, arguments.accelerate_config);
  if (arguments.has_page()) {
    io::check_output_file({.path = arguments.html,
                           .named_by = "--html",
                           .inputs = train::recipe_inputs(loaded),
                           .is_earlier_output = io::begins_with(data::kShowPageBegin),
                           .overwrites = arguments.overwrite});
  }
  const auto [recipe, tokenizer, rows] = read_rows(
      std::move(loaded), arguments.nproc, std::max<int64_t>(arguments.show.num_rows, kShownOfAStream));
  if (!tokenizer) {
    throw Error(ErrorKind::Model, "TOKENIZER", "rows cannot be shown without a tokenizer")
        .in(recipe.base_model)
        .need("tokenizer.json, or tokenizer_config in the recipe");
  }
  data::ShowOptions show = show_options(arguments, recipe, rows);
  if (arguments.has_page()) {
    io::write_file_atomic(arguments.html, data::show_data_html(rows, *tokenizer, show, arguments.recipe));
    show.num_rows = 0;
  }
  if (recipe.streaming)
    std::cout << "of a stream: the first " << rows.train.size() << " sequences, as in a run\n\n";
  if (show.drawn.rows.size() > 0)
    std::cout << "the first rows, drawn by the weights of the steps as in a run\n\n";
  data::show_data(std::cout, rows, *tokenizer, show);
  if (arguments.has_page()) std::cout << "\nrows: " << text_for(STDOUT_FILENO, arguments.html) << '\n';
  return 0;
}

void add_show(CLI::App& data, CommandLine& line) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* verb = data.add_subcommand("show", "Print rows with the trained tokens marked, and statistics");
  verb->add_option("recipe", arguments->recipe, "The recipe")->required();
  verb->add_option("overrides", arguments->overrides, "key=value");
  arguments->num_rows = verb->add_option("--rows", arguments->show.num_rows, "Rows to print");
  arguments->num_rows->check(CLI::Range(0, 1000000));
  verb->add_option("--accelerate-config", arguments->accelerate_config, kAccelerateHelp);
  verb->add_option("--nproc", arguments->nproc,
                   "Number of ranks of the training run, to check that the recipe fits them")
      ->check(CLI::Range(1, 4096));
  verb->add_flag("--tokens", arguments->show.tokens, "Mark the boundaries of tokens");
  verb->add_flag("--each-token", arguments->show.each_token,
                 "Print a line for each token: position, id, label, text");
  verb->add_option("--html", arguments->html,
                   "Write an HTML page with 50 rows (or --rows) and the statistics to this file");
  verb->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  verb->add_flag("--no-color", arguments->no_color, "Mark trained tokens with brackets instead of colour");
  line.set_action(*verb, [arguments] { return show_rows(*arguments); });
}

}  // namespace

void add_data(CLI::App& app, CommandLine& line) {
  CLI::App* data = app.add_subcommand("data", "Prepare and inspect the training data of a recipe");
  data->require_subcommand(1);
  add_prepare(*data, line);
  add_show(*data, line);
}

}  // namespace tessera::cli
