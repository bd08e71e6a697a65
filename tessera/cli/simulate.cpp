// The verb `tessera simulate`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/plan_print.h"
#include "tessera/cli/plan_question.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/planner/failures.h"
#include "tessera/planner/simulation/simulated_step.h"
#include "tessera/planner/step_time.h"
#include "tessera/train/run/planned_work.h"

namespace tessera::cli {
namespace {

using planner::Activity;
using planner::RankTimes;
using planner::RankTrace;
using planner::SimulatedStep;

constexpr size_t kMostPrinted = 16;  // ranks

struct SimulateOptions {
  std::string recipe, cluster, timeline;
  std::vector<std::string> overrides, slow_ranks, slow_nodes;
  double failure_hours = 0.0, checkpoint_s = 30.0, restart_s = 300.0;
  int64_t seed = 1;
  bool overwrite = false, as_json = false;
};

// Reads "17=1.5": a number below `count`, and a factor.
std::map<int64_t, double> read_factors(const std::vector<std::string>& texts, const std::string& option,
                                       const char* what, int64_t count) {
  std::map<int64_t, double> factors;
  for (const std::string& text : texts) {
    long long number = -1;
    double factor = 0.0;
    int used = 0;
    const bool is_pair = std::sscanf(text.c_str(), "%lld=%lf%n", &number, &factor, &used) == 2 &&
                         static_cast<size_t>(used) == text.size();
    if (!is_pair || number < 0 || number >= count || !(factor >= 1.0) || factor > 1e6) {
      throw Error(ErrorKind::Config, "SIMULATION", option + " names a " + what + " and how slow it is")
          .at("command line")
          .got(text)
          .need(std::string(what) + " 0 to " + std::to_string(count - 1) + ", '=', a factor of at least 1")
          .hint("7=1.5: " + std::string(what) + " 7 takes 1.5 times as long");
    }
    factors[number] = factor;
  }
  return factors;
}

// The rank whose compute waits least.
const RankTrace& busiest(const SimulatedStep& step) {
  return *std::ranges::min_element(step.ranks, {}, [&](const RankTrace& trace) {
    const RankTimes times = planner::times_of(step, trace);
    return std::accumulate(times.waits.begin(), times.waits.end(), times.peers);
  });
}

void print_times(const SimulatedStep& step, const RankTrace& trace) {
  const RankTimes times = planner::times_of(step, trace);
  std::printf("\ntime of the busiest rank, %lld%s\n", static_cast<long long>(trace.rank),
              step.programs.size() > 1 ? (" (stage " + std::to_string(trace.place) + ")").c_str() : "");
  const auto row = [&](const std::string& name, double seconds) {
    if (seconds > 1e-9 * step.seconds)
      std::printf("  %-38s %9.4f s %5.1f %%\n", name.c_str(), seconds, 100.0 * seconds / step.seconds);
  };
  for (size_t i = 0; i < planner::kNumActivities; ++i)
    row(std::string(activity_name(static_cast<Activity>(i))), times.busy[i]);
  for (size_t i = 0; i < planner::kNumActivities; ++i)
    row("waits for: " + std::string(activity_name(static_cast<Activity>(i))), times.waits[i]);
  row("waits for other ranks", times.peers);
  row("step", step.seconds);
}

void print_ranks(const SimulatedStep& step) {
  std::printf("\n  %-10s %6s %8s %8s %8s %10s %10s\n", "rank", "stage", "compute", "messages", "waits",
              "node link", "network");
  for (size_t i = 0; i < std::min(kMostPrinted, step.ranks.size()); ++i) {
    const RankTrace& trace = step.ranks[i];
    const RankTimes times = planner::times_of(step, trace);
    double compute = 0.0, messages = 0.0;
    for (size_t a = 0; a < planner::kNumActivities; ++a) {
      const auto activity = static_cast<Activity>(a);
      const bool is_message = activity == Activity::Tensor || activity == Activity::Context ||
                              activity == Activity::Experts || activity == Activity::GradientNorm;
      (is_message ? messages : compute) += times.busy[a];
    }
    const auto share = [&](double seconds) { return 100.0 * seconds / step.seconds; };
    std::printf("  %-10lld %6lld %7.1f%% %7.1f%% %7.1f%% %9.1f%% %9.1f%%\n",
                static_cast<long long>(trace.rank), static_cast<long long>(trace.place), share(compute),
                share(messages), share(step.seconds - compute - messages), share(trace.node_link_s),
                share(trace.network_link_s));
  }
  if (step.ranks.size() > kMostPrinted)
    std::printf("  and %zu more kinds of ranks\n", step.ranks.size() - kMostPrinted);
}

planner::Failures failures_of(const SimulateOptions& options, int64_t devices) {
  return {options.failure_hours * 3600.0 / static_cast<double>(devices), options.checkpoint_s,
          options.restart_s};
}

void print_failures(const SimulateOptions& options, const planner::Cluster& cluster, double step_s,
                    double steps) {
  const planner::Failures failures = failures_of(options, cluster.size());
  std::printf(
      "\nfailures: one device in %s hours, so one of %s devices every %s\n"
      "  a checkpoint takes %.4g s, a restart %.4g s\n",
      group_digits(static_cast<int64_t>(options.failure_hours)).c_str(), group_digits(cluster.size()).c_str(),
      format_duration(failures.mean_s).c_str(), failures.save_s, failures.restart_s);
  const double young = planner::young_interval(failures), daly = planner::daly_interval(failures);
  const auto in_steps = [&](double seconds) { return std::max<int64_t>(1, std::llround(seconds / step_s)); };
  std::printf("  best interval: %s (save_steps: %lld) by Daly, %s by Young\n", format_duration(daly).c_str(),
              static_cast<long long>(in_steps(daly)), format_duration(young).c_str());
  const double work_s = steps > 0.0 ? steps * step_s : 30.0 * 86400.0;
  std::printf("\n  %12s %14s %14s  %s of training takes (100 runs: median, 95th percentile)\n", "save_steps",
              "every", "useful time", format_duration(work_s).c_str());
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const int64_t save_steps = in_steps(factor * daly);
    const double interval = static_cast<double>(save_steps) * step_s;
    const std::vector<double> runs =
        planner::play_runs(failures, interval, work_s, 100, static_cast<uint64_t>(options.seed));
    std::printf("  %12lld %14s %12.1f %%  %s, %s\n", static_cast<long long>(save_steps),
                format_duration(interval).c_str(), 100.0 * planner::useful_share(failures, interval),
                format_duration(runs[50]).c_str(), format_duration(runs[95]).c_str());
  }
}

struct Answer {
  SimulatedStep step, undisturbed;
  planner::StepTime sum;
  planner::Choice choice;
};

void print_answer(const SimulateOptions& options, const PlanQuestion& question, const Answer& answer) {
  const double seconds = answer.step.seconds, sum = answer.sum.total();
  std::printf("%s on %s: %s ranks, %s\n", options.recipe.c_str(), options.cluster.c_str(),
              group_digits(question.cluster.size()).c_str(), describe(answer.choice).c_str());
  std::printf("step %.4f s, %s tokens/s, MFU %.1f %%; the planner's sum says %.4f s (%+.1f %%)\n", seconds,
              group_digits(static_cast<int64_t>(answer.sum.tokens / seconds)).c_str(),
              100.0 * answer.sum.model_flops / (seconds * answer.sum.peak_flops), sum,
              100.0 * (sum / seconds - 1.0));
  const double undisturbed = answer.undisturbed.seconds;
  if (seconds != undisturbed) {
    std::printf("the slow devices cost %.1f %% of a step, which takes %.4f s without them\n",
                100.0 * (seconds / undisturbed - 1.0), undisturbed);
  }
  print_times(answer.step, busiest(answer.step));
  print_ranks(answer.step);
  if (options.failure_hours > 0.0) print_failures(options, question.cluster, seconds, question.job.steps);
}

void print_json(const SimulateOptions& options, const PlanQuestion& question, const Answer& answer) {
  const SimulatedStep& step = answer.step;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankTrace& trace : step.ranks) {
    const RankTimes times = planner::times_of(step, trace);
    nlohmann::ordered_json busy = nlohmann::ordered_json::object(), waits = busy;
    for (size_t i = 0; i < planner::kNumActivities; ++i) {
      const std::string name(activity_name(static_cast<Activity>(i)));
      if (times.busy[i] > 0.0) busy[name] = times.busy[i];
      if (times.waits[i] > 0.0) waits[name] = times.waits[i];
    }
    ranks.push_back({{"rank", trace.rank},
                     {"stage", trace.place},
                     {"busy_s", busy},
                     {"waits_s", waits},
                     {"waits_for_ranks_s", times.peers},
                     {"node_link_s", trace.node_link_s},
                     {"network_link_s", trace.network_link_s}});
  }
  nlohmann::ordered_json all = {{"step_s", step.seconds},
                                {"tokens_per_s", answer.sum.tokens / step.seconds},
                                {"mfu", answer.sum.model_flops / (step.seconds * answer.sum.peak_flops)},
                                {"sum_s", answer.sum.total()},
                                {"undisturbed_s", answer.undisturbed.seconds},
                                {"ranks", ranks}};
  if (options.failure_hours > 0.0) {
    const planner::Failures failures = failures_of(options, question.cluster.size());
    const double interval = planner::daly_interval(failures);
    all["failures"] = {{"mean_s", failures.mean_s},
                       {"young_interval_s", planner::young_interval(failures)},
                       {"daly_interval_s", interval},
                       {"useful_share", planner::useful_share(failures, interval)}};
  }
  std::printf("%s\n", all.dump().c_str());
}

int simulate_run(const SimulateOptions& options) {
  if (!options.timeline.empty()) {
    io::check_output_file({.path = options.timeline,
                           .named_by = "--timeline",
                           .inputs = {{options.recipe, "the recipe"}, {options.cluster, "the cluster"}},
                           .is_earlier_output = io::begins_with("{\"traceEvents\":["),
                           .overwrites = options.overwrite});
  }
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  const PlanQuestion question = plan_question(recipe, options.cluster);
  const planner::Cluster& cluster = question.cluster;
  Answer answer;
  answer.choice = train::choice_of(recipe, cluster.size());
  if (answer.choice.offload == planner::Offload::DriveStates && cluster.nvme_gb_s <= 0.0) {
    throw Error(ErrorKind::Config, "CLUSTER", "the recipe's optimizer states lie on a drive")
        .at(options.cluster)
        .need("nvme_gib and nvme_gb_s");
  }
  const planner::Disturbances slow{read_factors(options.slow_ranks, "--slow-rank", "rank", cluster.size()),
                                   read_factors(options.slow_nodes, "--slow-network", "node", cluster.nodes)};
  const auto simulate = [&](const planner::Disturbances& disturbances) {
    return planner::simulate_step(question.work, cluster, question.job, answer.choice, disturbances,
                                  question.software);
  };
  answer.sum = planner::step_time(question.work, cluster, question.job, answer.choice, question.software);
  answer.step = simulate(slow);
  answer.undisturbed = slow.slow_ranks.empty() && slow.slow_networks.empty() ? answer.step : simulate({});
  if (options.as_json) {
    print_json(options, question, answer);
  } else {
    print_answer(options, question, answer);
  }
  if (!options.timeline.empty()) {
    io::write_file_atomic(options.timeline, planner::timeline_json(answer.step));
    log::info("wrote " + options.timeline + "; open it in ui.perfetto.dev or chrome://tracing");
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* verb =
      app.add_subcommand("simulate", "Play a recipe's training step on a cluster, event by event");
  verb->add_option("recipe", options->recipe, "The recipe, with the sizes of its axes")->required();
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--cluster", options->cluster, kClusterHelp)->required();
  verb->add_option("--slow-rank", options->slow_ranks, "RANK=FACTOR: its compute takes FACTOR times as long");
  verb->add_option("--slow-network", options->slow_nodes,
                   "NODE=FACTOR: bytes to and from this node take FACTOR times as long");
  verb->add_option(
          "--failure-hours", options->failure_hours,
          "Mean hours of one device between two failures (Llama 3 on H100: 50000); shows how often to "
          "save")
      ->check(CLI::Range(1e-3, 1e12));
  verb->add_option("--checkpoint-seconds", options->checkpoint_s,
                   "Seconds for which a checkpoint holds the training up")
      ->check(CLI::Range(1e-3, 1e9));
  verb->add_option("--restart-seconds", options->restart_s, "Seconds from a failure to the next step")
      ->check(CLI::Range(0.0, 1e9));
  verb->add_option("--seed", options->seed, "Seed of the failures that are played")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--timeline", options->timeline, "Write the step as a timeline for Perfetto to this file");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  verb->footer(
      "Each kind of rank is played with its streams of compute, gathers, reductions and messages, which "
      "share "
      "the\nlinks of the cluster. docs/planner.md says what is simulated, and how it differs from the sum of "
      "`tessera plan`.");
  line.set_action(*verb, [options] { return simulate_run(*options); });
}

}  // namespace tessera::cli
