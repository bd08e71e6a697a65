// The verb `tessera train RECIPE [--nproc N] [key=value ...]`.
#include <memory>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/cli/restarts.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/comm/rank_cores.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/train/run/run_signals.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::cli {

namespace {

struct Options {
  std::string recipe, accelerate_config;
  std::vector<std::string> overrides;
  int64_t nproc = 1, max_restarts = 0;
};

int run_train(const Options& options, const CommandLine& line) {
  // The recipe is checked before any launcher or collective, so that a bad one ends here, once.
  const auto info = comm::launch_info();
  if (options.max_restarts > 0 && info.has_launcher) {
    throw Error(ErrorKind::Config, "RESTARTS", "--max-restarts under another launcher")
        .need("--nproc, with which tessera starts the ranks itself")
        .hint("under Slurm, let the job be requeued instead: recipes/slurm.sbatch");
  }
  const bool has_restarts = options.max_restarts > 0;
  const bool will_relaunch = (options.nproc > 1 && !is_under_launcher(options.nproc)) || has_restarts;
  // If ranks will be started, the first of them tells the recipe's warnings.
  if (will_relaunch) log::set_quiet(true);
  const config::Recipe recipe =
      config::load_recipe(options.recipe, options.overrides, options.accelerate_config);
  if (will_relaunch) log::set_quiet(false);
  const at::Device device = train::device_of(recipe.device, recipe);
  config::validate_parallelism(recipe, info.has_launcher ? info.size : options.nproc);
  const auto start = [&](const std::vector<std::string>& more_keys) {
    std::vector<std::string> arguments = line.arguments;
    arguments.insert(arguments.end(), more_keys.begin(), more_keys.end());
    return launch(options.nproc, arguments);
  };
  if (has_restarts) return run_with_restarts(recipe, options.max_restarts, start);
  if (will_relaunch) return start({}).exit_code;
  train::RunSignals signals(tell_end, has_launching_process() ? getppid() : 0);
  const comm::Bootstrap bootstrap(device, own_start_timeout_s(), recipe.output_dir);
  comm::share_cores(*bootstrap.world());
  tell_started();
  const bool is_stopped = train::train(recipe, bootstrap.world(), signals).is_stopped;
  return is_stopped ? train::kStoppedExitCode : 0;
}

}  // namespace

void add_train(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("train", "Train or finetune a model as a recipe says");
  verb->add_option("recipe", options->recipe, "The recipe (YAML; docs/recipes.md)")->required();
  verb->add_option("overrides", options->overrides,
                   "key=value overrides a key of the recipe (a.b=value for nested keys)");
  verb->add_option("--accelerate-config", options->accelerate_config,
                   "A configuration file of Accelerate to read in addition to the recipe");
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->add_option("--max-restarts", options->max_restarts,
                   "How often to restart from the newest checkpoint when a rank is lost or hangs")
      ->check(CLI::Range(0, 1000000));
  verb->footer(
      "The result in output_dir is the model or adapter, metrics.jsonl, runs/ (TensorBoard) and recipe.yaml. "
      "Until\nthe end of the run these files are in <output_dir>.tessera-partial; then they are put in place "
      "as a whole.\noverwrite_output_dir=true replaces an existing result.\nOn Ctrl-C or SIGTERM, a run that "
      "saves checkpoints saves one and ends (exit code 75); a second signal ends\nit at once. On SIGUSR1, or "
      "touch <output_dir>.tessera-save, it saves one and continues. See docs/operations.md.");
  line.set_action(*verb, [options, &line] { return run_train(*options, line); });
}

}  // namespace tessera::cli
