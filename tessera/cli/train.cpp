// tessera train RECIPE [--nproc N] [key=value ...]
#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/launch.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/comm/rank_cores.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/log.h"
#include "tessera/train/setup.h"
#include "tessera/train/trainer.h"

namespace tessera::cli {

void add_train(CLI::App& app, const CommandLine& line, Action& action) {
  struct Options {
    std::string recipe;
    std::vector<std::string> overrides;
    int64_t nproc = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("train", "Train or finetune by a recipe");
  verb->add_option("recipe", options->recipe, "The recipe (YAML; docs/recipes.md)")->required();
  verb->add_option("overrides", options->overrides,
                   "key=value: replaces what the recipe says (a.b=value for nested keys)");
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->footer(
      "Leaves output_dir with the model or adapter, metrics.jsonl, runs/ (TensorBoard) and recipe.yaml. It "
      "is\n"
      "put in place as a whole at the end; until then they are in <output_dir>.tessera-partial. A folder "
      "that\n"
      "holds a result already is replaced with overwrite_output_dir=true.");
  verb->callback([options, line, &action] {
    action = [options, line] {
      // Before any launcher or collective: a bad recipe ends here, once.
      const auto info = comm::launch_info();
      const bool will_relaunch = options->nproc > 1 && !info.has_launcher;
      // Its warnings are the first rank's to say.
      if (will_relaunch) log::set_quiet(true);
      const config::Recipe recipe = config::load_recipe(options->recipe, options->overrides);
      if (will_relaunch) log::set_quiet(false);
      const at::Device device = train::device_of(recipe);
      config::validate_parallelism(recipe, info.has_launcher ? info.size : options->nproc);
      if (const auto code = relaunch(options->nproc, line.arguments)) return *code;
      const comm::Bootstrap bootstrap(device);
      comm::share_cores(*bootstrap.world());
      train::train(recipe, bootstrap.world());
      return 0;
    };
  });
}

}  // namespace tessera::cli
