// The verb `tessera evaluate RECIPE|MODEL`.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/manifest.h"
#include "tessera/cli/evaluate_tasks.h"
#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/cli/task_results.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/comm/rank_cores.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/new_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/train/run/evaluate_model.h"
#include "tessera/train/setup/adapter_options.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  TaskRunOptions task_run;  // what only --tasks has
  std::string target, model, data, type;
  std::vector<std::string> overrides;
  int64_t nproc = 1;
  bool as_json = false;

  // Tells a recipe from a model: a recipe is a file, and a model is a folder, a GGUF file or a name.
  bool is_recipe() const {
    std::error_code ignored;
    return !target.ends_with(".gguf") && !fs::is_directory(target, ignored) &&
           (fs::exists(target, ignored) || target.ends_with(".yaml") || target.ends_with(".yml"));
  }
};

bool has_file(const std::string& folder, const char* name) { return io::exists(io::join_path(folder, name)); }

std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

// Returns the folder of the result that the recipe's run has left; "" if there is none.
std::string result_of(const Options& options) {
  log::set_quiet(true);  // the recipe is read again, and tells its warnings then
  const std::string folder = config::load_recipe_alone(options.target, options.overrides).output_dir;
  log::set_quiet(comm::launch_info().rank > 0);
  return has_file(folder, "config.json") || has_file(folder, "adapter_config.json") ? folder : "";
}

// Returns the classes of a classifier, or of an adapter of one; nothing for any other model.
std::optional<Classification> classes_of(const std::string& folder) {
  if (!has_file(folder, "config.json")) return std::nullopt;
  return models::read_model_config(folder)->classification;
}

bool is_masked_lm(const std::string& folder) {
  return has_file(folder, "config.json") && models::read_model_config(folder)->is_masked_lm;
}

// Returns a recipe for the rows of one file.
config::Recipe recipe_of_file(const Options& options, const std::vector<std::string>& overrides) {
  if (options.data.empty()) {
    throw Error(ErrorKind::Config, "EVALUATE-DATA", "no data to evaluate the model on")
        .at("command line")
        .need("--data FILE or --tasks, or a recipe instead of the model");
  }
  const auto classes = classes_of(options.target);
  const bool is_masked = is_masked_lm(options.target);
  const std::string type = !options.type.empty()  ? options.type
                           : classes || is_masked ? ""
                                                  : config::guess_dataset_type(options.data);
  nlohmann::ordered_json dataset = {{"path", absolute(options.data)}};
  if (!type.empty()) dataset["type"] = type;
  nlohmann::ordered_json keys = {
      {"base_model", options.target}, {"datasets", {dataset}}, {"learning_rate", 1e-5}};
  if (classes) {
    keys["task"] = classes->of_tokens() ? "token_classification" : "classification";
    keys["excess_length_strategy"] = "truncate";
    keys["label_names"] = classes->labels;
    if (!classes->of_tokens()) keys["problem_type"] = problem_type_name(classes->problem);
  }
  if (is_masked) keys["task"] = "masked_lm";
  config::Recipe recipe = config::parse_recipe(keys.dump(), "command line", overrides);
  config::Problems problems;
  config::resolve_paths(recipe, problems);
  problems.settle();
  return recipe;
}

config::AdapterKind kind_of(const std::string& adapter) {
  switch (peft::read_adapter_config(adapter).options.method) {
    case peft::AdapterMethod::Ia3: return config::AdapterKind::Ia3;
    case peft::AdapterMethod::Norms: return config::AdapterKind::LnTuning;
    case peft::AdapterMethod::Vera: return config::AdapterKind::Vera;
    case peft::AdapterMethod::Prompt: return config::AdapterKind::PromptTuning;
    case peft::AdapterMethod::Lora: break;
  }
  return config::AdapterKind::Lora;
}

// Returns the recipe with base_model and adapter of the model that is to be evaluated.
config::Recipe load(const Options& options, const std::string& model) {
  std::vector<std::string> overrides;
  const bool is_model = !model.empty() && !checkpoint::is_checkpoint(model);
  const bool is_adapter = is_model && generation::is_adapter(model);
  if (is_model) {
    const std::string base =
        is_adapter ? generation::adapter_base(model, "base_model=FOLDER names it") : model;
    overrides.push_back("base_model=" + nlohmann::json(base).dump());
  }
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  config::Recipe recipe = options.is_recipe() ? config::load_recipe(options.target, overrides)
                                              : recipe_of_file(options, overrides);
  if (!is_model) return recipe;
  // The keys of a new adapter say nothing of the model that is there.
  recipe = train::with_lora_options(std::move(recipe), {});
  std::erase_if(recipe.key_places, [](const auto& key) {
    const auto begins = [&](const char* prefix) { return key.first.starts_with(prefix); };
    return begins("lora_") || begins("peft_") || begins("ia3_") || begins("vera_") ||
           begins("num_virtual_") || begins("prompt_tuning_");
  });
  recipe.adapter = is_adapter ? kind_of(model) : config::AdapterKind::None;
  recipe.lora_model_dir = is_adapter ? absolute(model) : "";
  if (is_adapter && recipe.tokenizer_config.empty() && has_file(model, "tokenizer.json"))
    recipe.tokenizer_config = recipe.lora_model_dir;
  recipe.random_init = false;
  return recipe;
}

void print_row(const std::string& name, double loss, int64_t label_tokens) {
  std::printf("%-32.32s %14s %9.4f %11.4g\n", name.c_str(), group_digits(label_tokens).c_str(), loss,
              std::exp(loss));
}

void print(const train::ModelEvaluation& result) {
  if (!result.metrics.empty()) {
    std::printf("%-32s %14s\n%-32s %14s\n%-32s %14.4f\n", "", "all rows", "labels",
                group_digits(result.label_tokens).c_str(), "loss", result.loss);
    for (const auto& [name, value] : result.metrics) std::printf("%-32s %14.4f\n", name.c_str(), value);
    return;
  }
  std::printf("%-32s %14s %9s %11s\n", "dataset", "label tokens", "loss", "perplexity");
  for (const auto& one : result.datasets) print_row(one.name, one.loss, one.label_tokens);
  print_row(result.datasets.empty() ? "all rows" : "all", result.loss, result.label_tokens);
}

// Returns the folder of the model that --tasks scores.
std::string model_of_tasks(const Options& options) {
  if (!options.is_recipe()) {
    if (io::exists(options.target) || !hub::parse_name(options.target)) return options.target;
    return hub::fetch_model(options.target, "", hub::Want::Model).value_or(options.target);
  }
  std::string model = options.model.empty() ? result_of(options) : options.model;
  if (model.empty()) model = config::load_recipe_alone(options.target, options.overrides).base_model;
  if (!checkpoint::is_checkpoint(model)) return model;
  throw Error(ErrorKind::Config, "EVALUATE-TASKS", "--tasks takes a model, and this is a checkpoint")
      .at("command line")
      .got(model)
      .hint("tessera convert writes a model folder of it");
}

int evaluate_with_tasks(const Options& options, const CommandLine& line) {
  if (!options.type.empty()) {
    throw Error(ErrorKind::Config, "USAGE", "--type says how rows are read, and --tasks reads no rows")
        .at("command line")
        .got(options.type);
  }
  TaskRunOptions run = options.task_run;
  run.model = model_of_tasks(options);
  run.data = options.data;
  run.overrides = options.overrides;
  run.nproc = options.nproc > 1 ? options.nproc : 0;  // the sizes then say how many ranks start
  run.as_json = options.as_json;
  return evaluate_tasks(run, line);
}

int evaluate(Options options, const CommandLine& line) {
  if (!options.task_run.tasks.empty()) return evaluate_with_tasks(options, line);
  if (!options.task_run.baseline.empty())
    return compare_results(options.target, options.task_run.baseline, options.as_json);
  if (!options.task_run.adapters.empty() || !options.task_run.output.empty()) {
    throw Error(ErrorKind::Config, "USAGE", "--adapter and --output belong to --tasks")
        .at("command line")
        .hint("without --tasks, name the adapter's folder as the model; --json prints the results");
  }
  const bool is_recipe = options.is_recipe();
  if (is_recipe && !options.data.empty()) {
    throw Error(ErrorKind::Config, "EVALUATE-DATA",
                "--data cannot be combined with a recipe, which names its own data")
        .at("command line")
        .hint("test_datasets.0.path=FILE and test_datasets.0.type=TYPE name other data");
  }
  if (!is_recipe && !options.model.empty()) {
    throw Error(ErrorKind::Config, "USAGE", "a model is given twice, and no recipe")
        .at("command line")
        .got(options.target + " and " + options.model);
  }
  std::string model = is_recipe ? options.model : options.target;
  if (is_recipe && model.empty()) model = result_of(options);
  const bool will_relaunch = options.nproc > 1 && !is_under_launcher(options.nproc);
  // If ranks will be started, the first of them tells the recipe's warnings.
  if (will_relaunch) log::set_quiet(true);
  const config::Recipe recipe = load(options, model);
  if (will_relaunch) log::set_quiet(false);
  const at::Device device = train::device_of(recipe.device, recipe);
  const auto info = comm::launch_info();
  config::validate_parallelism(recipe, info.has_launcher ? info.size : options.nproc);
  if (const auto code = relaunch(options.nproc, line.arguments)) return *code;

  const comm::Bootstrap bootstrap(device, own_start_timeout_s());
  comm::share_cores(*bootstrap.world());
  tell_started();
  log::info("evaluates " + (model.empty() ? recipe.base_model : model));
  const train::ModelEvaluation result =
      train::evaluate_model(recipe, checkpoint::is_checkpoint(model) ? model : "", bootstrap.world());
  if (bootstrap.world()->rank() != 0) return 0;
  if (options.as_json) {
    std::printf("%s\n", result.to_json().c_str());
  } else {
    print(result);
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("evaluate", "Measure the loss of a model on data, or its scores in tasks");
  verb->alias("eval");
  verb->add_option("target", options->target,
                   "A recipe, to use its evaluation data (or all of its rows, if it has none); or, with "
                   "--data or --tasks, "
                   "a model folder, an adapter's folder, a GGUF file or the name of a model on the hub")
      ->required();
  verb->add_option("overrides", options->overrides,
                   "key=value overrides a key of the recipe (a.b=value for nested keys)");
  verb->add_option("--model", options->model,
                   "With a recipe: the model, adapter or checkpoint-<step> to evaluate. The default is the "
                   "result in output_dir if there is one, otherwise base_model")
      ->check(CLI::ExistingPath);
  verb->add_option(
          "--data", options->data,
          "With a model: a file of rows to evaluate on. With --tasks: a folder that holds their data")
      ->check(CLI::ExistingPath);
  verb->add_option("--type", options->type,
                   "Type of these rows (docs/datasets.md); by default it is guessed from the first rows");
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  add_task_options(*verb, line, options->task_run);
  verb->footer(
      "The loss is the mean cross-entropy, in nats, over the tokens that training would train on; the "
      "perplexity\nis its exponential. Keys of the recipe set the parallelism and the dtype: "
      "tensor_parallel_size=2 dtype=bf16 ...");
  line.set_action(*verb, [options, &line] { return evaluate(*options, line); });
}

}  // namespace tessera::cli
