// The verb `tessera tune`.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/own_process.h"
#include "tessera/cli/plan_print.h"
#include "tessera/cli/plan_question.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/bind.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/sha256.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/planner/search.h"
#include "tessera/planner/seeded_rates.h"
#include "tessera/train/run/planned_work.h"

namespace tessera::cli {
namespace {

struct TuneOptions {
  std::string recipe, cluster, write_to, memory, rates;
  std::vector<std::string> overrides;
  int64_t nproc = 1, trials = 8, steps = 3;
  double minutes = 10.0;
  bool overwrite = false;
};

constexpr int64_t kMostMemory = int64_t{64} << 20;

// One layout, and what a trial of it measured.
struct Trial {
  planner::Choice choice;
  std::vector<std::string> keys;  // of the recipe, as key=value
  double planned = 0.0;           // tokens/s
  double measured = 0.0;          // tokens/s; 0 where it failed
  double peak_bytes = 0.0;        // of a rank
  bool is_remembered = false;
  std::string problem;
};

// The keys of a choice, without those that would contradict them.
std::vector<std::string> keys_of(const planner::Choice& choice, const planner::Job& job) {
  std::vector<std::string> keys = train::as_overrides(choice.recipe_lines(job));
  keys.insert(keys.end(), {"global_batch_size=", "pipeline_microbatches=", "pipeline_split="});
  return keys;
}

// Returns the recipe's own layout, if it is one on these ranks, and then the fastest plans of the search, by
// turns of their axes, so that no kind of layout fills the trials.
std::vector<Trial> candidates(const TuneOptions& options, const PlanQuestion& question,
                              const config::Recipe& recipe) {
  std::vector<Trial> trials;
  const auto is_there = [&](const planner::Choice& choice) {
    return std::ranges::any_of(trials, [&](const Trial& trial) { return trial.choice == choice; });
  };
  const auto add = [&](const planner::Choice& choice) {
    if (std::ssize(trials) == options.trials) return;
    const planner::StepTime time =
        planner::step_time(question.work, question.cluster, question.job, choice, question.software);
    trials.push_back(
        {.choice = choice, .keys = keys_of(choice, question.job), .planned = time.tokens_per_s()});
  };
  try {
    planner::Choice own = train::choice_of(recipe, options.nproc);
    own.micro_batch = std::min(own.micro_batch, question.job.sequences_per_step);
    add(own);
  } catch (const Error& error) {
    log::info("the recipe's own layout is no candidate: " + std::string(error.message()));
  }
  const planner::SearchResult found =
      planner::search(question.work, question.cluster, question.job, question.kept, question.software);
  using Axes = std::array<int64_t, 5>;
  std::map<Axes, int64_t> of_axes;
  for (int64_t most = 1; std::ssize(trials) < options.trials; ++most) {
    bool has_more = false;
    for (const planner::Plan& plan : found.plans) {
      const planner::Choice& c = plan.choice;
      int64_t& count = of_axes[{c.dp_replicate * c.dp_shard, c.cp, c.tp, c.pp, c.ep}];
      if (is_there(c)) continue;
      has_more = true;
      if (count >= most) continue;
      ++count;
      add(c);
    }
    if (!has_more) break;
  }
  return trials;
}

// Keeps what trials measured, in a file of JSON Lines. A trial is known again by the recipe, its keys, the
// ranks and the machine.
class TrialMemory {
 public:
  TrialMemory(const TuneOptions& options, const config::Recipe& recipe) : path_(options.memory) {
    Sha256 sum;
    sum.add(config::write_yaml(recipe, config::KeysToWrite::Given));
    sum.add("\n" + host_name() + "\n" + std::to_string(options.nproc) + "\n" + std::to_string(options.steps));
    run_ = sum.hex();
    if (path_.empty() || !io::exists(path_)) return;
    text_ = io::read_file(path_, kMostMemory);
    for (const std::string& line : lines_of(text_)) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object() || json.value("run", "") != run_) continue;
      known_[json.value("keys", "")] = {json.value("tokens_per_s", 0.0), json.value("peak_bytes", 0.0)};
    }
  }

  bool recall(Trial& trial) const {
    const auto found = known_.find(join(trial.keys, " "));
    if (found == known_.end() || found->second.first <= 0.0) return false;
    trial.measured = found->second.first;
    trial.peak_bytes = found->second.second;
    trial.is_remembered = true;
    return true;
  }

  void keep(const Trial& trial) {
    if (path_.empty() || trial.measured <= 0.0) return;
    text_ += nlohmann::ordered_json{{"run", run_},
                                    {"keys", join(trial.keys, " ")},
                                    {"planned", trial.planned},
                                    {"tokens_per_s", trial.measured},
                                    {"peak_bytes", trial.peak_bytes}}
                 .dump() +
             "\n";
    io::write_file_atomic(path_, text_);
  }

 private:
  std::string path_, run_, text_;
  std::map<std::string, std::pair<double, double>> known_;
};

void measure(const TuneOptions& options, double limit_s, Trial& trial) {
  std::vector<std::string> arguments = {"bench",    "train",
                                        "--recipe", options.recipe,
                                        "--steps",  std::to_string(options.steps),
                                        "--nproc",  std::to_string(options.nproc),
                                        "--json"};
  arguments.insert(arguments.end(), options.overrides.begin(), options.overrides.end());
  arguments.insert(arguments.end(), trial.keys.begin(), trial.keys.end());
  const OwnProcess process = run_own_process(arguments, limit_s);
  for (const std::string& line : lines_of(process.output)) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("tokens_per_s")) continue;
    trial.measured = json.value("tokens_per_s", 0.0);
    const double device = json.value("peak_device_bytes", 0.0);
    trial.peak_bytes = device > 0.0 ? device : json.value("peak_rss_bytes", 0.0);
    return;
  }
  trial.problem = process.problem();
}

void print_trial(size_t number, const Trial& trial) {
  if (trial.measured <= 0.0) {
    std::printf("%2zu  %12s %12s  %s\n    %s\n", number,
                group_digits(static_cast<int64_t>(trial.planned)).c_str(), "failed",
                describe(trial.choice).c_str(), trial.problem.c_str());
  } else {
    std::printf("%2zu  %12s %12s %10s  %s%s\n", number,
                group_digits(static_cast<int64_t>(trial.planned)).c_str(),
                group_digits(static_cast<int64_t>(trial.measured)).c_str(),
                format_bytes(static_cast<int64_t>(trial.peak_bytes)).c_str(), describe(trial.choice).c_str(),
                trial.is_remembered ? " (remembered)" : "");
  }
  std::fflush(stdout);
}

// Writes the cluster with the rates for which the plans come nearest to the trials.
void write_rates(const TuneOptions& options, const PlanQuestion& question, const std::vector<Trial>& trials) {
  std::vector<planner::MeasuredStep> steps;
  for (const Trial& trial : trials) {
    if (trial.measured > 0.0) steps.push_back({trial.choice, trial.measured});
  }
  const planner::SeededRates seeded =
      planner::seeded_rates(question.work, question.cluster, question.job, steps, question.software);
  io::write_file_atomic(options.rates, planner::cluster_yaml(seeded.cluster));
  std::printf(
      "\nrates by %zu trials: products %.2f times, memory %.2f times, links %.2f times those before;\n"
      "plans differ from the trials by %.1f %% in place of %.1f %%; --cluster %s plans with them\n",
      steps.size(), seeded.products, seeded.memory, seeded.links, 100.0 * std::expm1(seeded.error_after),
      100.0 * std::expm1(seeded.error_before), options.rates.c_str());
}

void write_recipe(const TuneOptions& options, const Trial& best) {
  std::vector<std::string> overrides = options.overrides;
  overrides.insert(overrides.end(), best.keys.begin(), best.keys.end());
  write_changed_recipe(options.recipe, overrides, options.write_to);
}

int tune_run(const TuneOptions& options) {
  for (const auto& [path, option] :
       {std::pair(&options.write_to, "--write"), std::pair(&options.memory, "--memory"),
        std::pair(&options.rates, "--write-rates")}) {
    if (path->empty()) continue;
    io::check_output_file({.path = *path,
                           .named_by = option,
                           .inputs = {{options.recipe, "the recipe"}, {options.cluster, "the cluster"}},
                           .is_earlier_output = io::begins_with("{\"run\":\""),
                           .overwrites = options.overwrite && path != &options.memory});
  }
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  const PlanQuestion question = plan_question(
      recipe, options.cluster.empty() ? std::to_string(options.nproc) + "xcpu" : options.cluster);
  if (question.cluster.size() != options.nproc) {
    throw Error(ErrorKind::Config, "TUNE", "the cluster does not have as many devices as there are ranks")
        .at("--cluster")
        .got(std::to_string(question.cluster.size()))
        .need(std::to_string(options.nproc) + ", as --nproc says");
  }
  std::vector<Trial> trials = candidates(options, question, recipe);
  if (trials.empty())
    throw Error(ErrorKind::Memory, "CANNOT-FIT", "no layout fits").hint("tessera plan says what would");
  std::printf("%zu layouts of %lld ranks, %lld steps each, in at most %.3g minutes\n\n", trials.size(),
              static_cast<long long>(options.nproc), static_cast<long long>(options.steps), options.minutes);
  std::printf("%2s  %12s %12s %10s\n", "", "planned", "tokens/s", "a rank");
  TrialMemory memory(options, recipe);
  const Timer timer;
  size_t number = 0;
  for (Trial& trial : trials) {
    ++number;
    if (!memory.recall(trial)) {
      const double left_s = options.minutes * 60.0 - timer.seconds();
      if (left_s <= 0.0) {
        std::printf("the time is over; %zu layouts were not tried\n", trials.size() - number + 1);
        break;
      }
      measure(options, left_s, trial);
      memory.keep(trial);
    }
    print_trial(number, trial);
  }
  const auto best = std::ranges::max_element(trials, {}, &Trial::measured);
  if (best->measured <= 0.0)
    throw Error(ErrorKind::Config, "TUNE", "no trial could be run").got(trials.front().problem);
  std::printf("\nfastest: %s", describe(best->choice).c_str());
  if (const Trial& own = trials.front(); best != trials.begin() && own.measured > 0.0)
    std::printf(", %.2f times layout 1", best->measured / own.measured);
  std::printf("\nits lines for the recipe\n");
  for (const std::string& line : best->choice.recipe_lines(question.job)) std::printf("  %s\n", line.c_str());
  if (!options.write_to.empty()) write_recipe(options, *best);
  if (!options.rates.empty()) write_rates(options, question, trials);
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* verb =
      app.add_subcommand("tune", "Measure the layouts of a recipe on this machine, and choose the fastest");
  verb->add_option("recipe", options->recipe, "The recipe")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->add_option("--cluster", options->cluster,
                   "What the layouts are chosen for, as in tessera plan; default: NPROCxcpu, measured now");
  verb->add_option("--trials", options->trials, "Layouts to try at most")->check(CLI::Range(1, 1000));
  verb->add_option("--steps", options->steps, "Steps of a trial that are measured, after one that is not")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--minutes", options->minutes, "Time after which no trial goes on")
      ->check(CLI::Range(0.01, 1e6));
  verb->add_option("--memory", options->memory,
                   "A file of trials, JSON Lines: those in it are not run again, and new ones are added");
  verb->add_option("--write", options->write_to, "Write the recipe with the fastest layout to this file");
  verb->add_option(
      "--write-rates", options->rates,
      "Write a cluster file of this machine, with the rates that bring the plans nearest to the trials");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->footer(
      "The layouts are the recipe's own and the fastest of tessera plan. Each runs a few steps of the recipe "
      "on full "
      "documents of random\ntokens, as tessera bench train --recipe does.");
  line.set_action(*verb, [options] { return tune_run(*options); });
}

}  // namespace tessera::cli
