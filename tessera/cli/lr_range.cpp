// The verb `tessera lr-range`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/own_process.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/temporary_folder.h"
#include "tessera/planner/rate_advice.h"

namespace tessera::cli {
namespace {

struct LrRangeOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  int64_t nproc = 1, steps = 100;
  double from = 1e-7, to = 1.0, minutes = 60.0;
  bool as_json = false;
};

constexpr int64_t kMostMetrics = int64_t{64} << 20;
constexpr size_t kRows = 20;  // of the table

// Returns the keys of a short training whose rate rises, which saves and sends nothing.
std::vector<std::string> keys_of_test(const LrRangeOptions& options, const std::string& output_dir) {
  std::vector<std::string> keys = {"lr_scheduler=lr_range_test",
                                   "learning_rate=" + config::format_number(options.from),
                                   "lr_range_test_max_lr=" + config::format_number(options.to),
                                   "max_steps=" + std::to_string(options.steps),
                                   "output_dir=" + output_dir,
                                   "logging_steps=1",
                                   "save_final=false",
                                   "save_strategy=no",
                                   "eval_strategy=no",
                                   "use_wandb=false",
                                   "use_mlflow=false"};
  for (const char* key : {"lr_scaling",
                          "lr_min",
                          "cosine_min_lr_ratio",
                          "cosine_constant_lr_ratio",
                          "lr_quadratic_warmup",
                          "lr_cycles",
                          "lr_end",
                          "lr_power",
                          "lr_timescale",
                          "lr_decay_steps",
                          "lr_stable_steps",
                          "lr_warmup_type",
                          "lr_decay_type",
                          "lr_div_factor",
                          "lr_final_div_factor",
                          "lr_plateau_factor",
                          "lr_plateau_patience",
                          "lr_plateau_threshold",
                          "lr_plateau_threshold_mode",
                          "lr_plateau_cooldown",
                          "warmup_steps",
                          "warmup_ratio",
                          "jagged_restart_steps",
                          "embedding_lr",
                          "embedding_lr_scale",
                          "lr_groups",
                          "save_steps",
                          "saves_per_epoch",
                          "save_minutes",
                          "eval_steps",
                          "evals_per_epoch",
                          "early_stopping_patience",
                          "load_best_model_at_end",
                          "metric_for_best_model",
                          "eval_tasks",
                          "eval_tasks_data",
                          "eval_tasks_limit",
                          "eval_tasks_num_fewshot",
                          "eval_tasks_apply_chat_template",
                          "eval_table_size",
                          "eval_max_new_tokens",
                          "prometheus_file",
                          "hub_model_id",
                          "resume_from_checkpoint",
                          "auto_resume_from_checkpoints",
                          "loss_watchdog_threshold",
                          "spike_action"}) {
    keys.push_back(std::string(key) + "=");
  }
  return keys;
}

// Reads the steps that a run has logged, also of one that has ended before its last step.
std::vector<planner::RatePoint> read_points(const std::string& output_dir) {
  std::vector<planner::RatePoint> points;
  for (const std::string& folder : {output_dir, output_dir + ".tessera-partial"}) {
    const std::string path = io::join_path(folder, "metrics.jsonl");
    if (!io::exists(path)) continue;
    for (const std::string& line : lines_of(io::read_file(path, kMostMetrics))) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || !json.contains("lr") || !json.contains("loss")) continue;
      points.push_back({json.at("lr").get<double>(),
                        json.at("loss").is_number() ? json.at("loss").get<double>() : std::nan("")});
    }
    break;
  }
  return points;
}

std::vector<planner::RatePoint> measure(const LrRangeOptions& options) {
  const io::TemporaryFolder folder("the steps of a training");
  const std::string output_dir = io::join_path(folder.path(), "out");
  std::vector<std::string> arguments = {"train", options.recipe, "--nproc", std::to_string(options.nproc)};
  arguments.insert(arguments.end(), options.overrides.begin(), options.overrides.end());
  for (std::string& key : keys_of_test(options, output_dir)) arguments.push_back(std::move(key));
  const OwnProcess process = run_own_process(arguments, options.minutes * 60.0);
  std::vector<planner::RatePoint> points = read_points(output_dir);
  if (!points.empty()) return points;
  throw Error(ErrorKind::Config, "LR-RANGE", "the training could not be run").got(process.problem());
}

void print_points(const std::vector<planner::RatePoint>& points, const std::vector<double>& smoothed) {
  std::printf("%12s %10s %10s\n", "rate", "loss", "smoothed");
  const size_t stride = std::max<size_t>(1, (points.size() + kRows - 1) / kRows);
  for (size_t i = 0; i < points.size(); i += stride) {
    std::printf("%12.3e %10.4f", points[i].rate, points[i].loss);
    if (i < smoothed.size()) std::printf(" %10.4f", smoothed[i]);
    std::printf("\n");
  }
}

void print_advice(const planner::RateAdvice& advice, double own_rate) {
  std::printf("\n");
  if (advice.tenth_of_best) {
    std::printf("the loss falls fastest at     %.2g\n", advice.steepest_rate.value_or(*advice.tenth_of_best));
    std::printf("a tenth of the lowest loss's  %.2g\n", *advice.tenth_of_best);
  } else {
    std::printf(
        "The loss falls by no more than chance explains: train larger batches (gradient_accumulation_steps), "
        "or more --steps.\n");
  }
  if (advice.divergence_rate) std::printf("training falls apart from     %.2g on\n", *advice.divergence_rate);
  if (own_rate <= 0.0) return;
  const bool is_high = advice.divergence_rate && own_rate >= 0.5 * *advice.divergence_rate,
             is_low = advice.tenth_of_best && own_rate < 0.01 * *advice.tenth_of_best;
  std::printf("the recipe's learning_rate    %.2g%s\n", own_rate,
              is_high  ? ", which is too high"
              : is_low ? ", which is low"
                       : "");
}

int lr_range_run(const LrRangeOptions& options) {
  if (options.from >= options.to) {
    throw Error(ErrorKind::Config, "LR-RANGE", "the first rate must be below the last one")
        .at("command line")
        .got(config::format_number(options.from) + " and " + config::format_number(options.to));
  }
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  if (!options.as_json) {
    std::printf("%lld steps at rates from %g to %g\n\n", static_cast<long long>(options.steps), options.from,
                options.to);
    std::fflush(stdout);
  }
  const std::vector<planner::RatePoint> points = measure(options);
  const planner::RateAdvice advice = planner::advise_rate(points);
  if (options.as_json) {
    const auto value = [](const std::optional<double>& rate) {
      return rate ? nlohmann::ordered_json(*rate) : nlohmann::ordered_json();
    };
    nlohmann::ordered_json json = {{"steepest", value(advice.steepest_rate)},
                                   {"tenth_of_best", value(advice.tenth_of_best)},
                                   {"divergence", value(advice.divergence_rate)},
                                   {"learning_rate", recipe.learning_rate}};
    for (const planner::RatePoint& point : points) {
      json["points"].push_back({{"rate", point.rate}, {"loss", point.loss}});
    }
    std::printf("%s\n", json.dump().c_str());
    return 0;
  }
  print_points(points, advice.smoothed);
  print_advice(advice, recipe.learning_rate);
  return 0;
}

}  // namespace

void add_lr_range(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<LrRangeOptions>();
  CLI::App* verb =
      app.add_subcommand("lr-range", "Find the range of learning rates at which a recipe trains");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--from", options->from, "The learning rate of the first step")
      ->check(CLI::Range(1e-30, 1e3));
  verb->add_option("--to", options->to, "The learning rate of the last step")->check(CLI::Range(1e-30, 1e3));
  verb->add_option("--steps", options->steps, "Steps of the test")->check(CLI::Range(10, 1'000'000));
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->add_option("--minutes", options->minutes, "Time after which the test ends with the steps it has")
      ->check(CLI::Range(0.01, 1e6));
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  verb->footer(
      "Trains the recipe for some steps whose learning rate rises by equal factors (a range test; Smith, "
      "2017),\nand reads the curve of the loss: where it falls fastest, and where training falls apart. "
      "Nothing is saved.\nThe schedule, its warm-up and the rates of parts of the model are left out.");
  line.set_action(*verb, [options] { return lr_range_run(*options); });
}

}  // namespace tessera::cli
