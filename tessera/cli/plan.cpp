// The verb `tessera plan`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/plan_print.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/bind.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/measure/device_rates.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/registry.h"
#include "tessera/planner/search.h"
#include "tessera/train/run/planned_work.h"

namespace tessera::cli {
namespace {

struct PlanOptions {
  std::string recipe, cluster, write_to;
  std::vector<std::string> overrides;
  int64_t top = 3, sequences_per_step = 0;
  double tokens = 0.0;
  bool explains = false, shows_rules = false, overwrite = false;
};

constexpr double kGib = 0x1p30;

// A recipe with its model's work, for a cluster.
struct Question {
  planner::Cluster cluster;
  planner::ModelWork work;
  planner::Job job;
  planner::Choice kept;
  planner::Software software = planner::kTessera;
};

// Returns this processor as one device, with rates that are measured now, as `tessera doctor` does.
planner::Cluster this_processor() {
  planner::Cluster cluster;
  planner::Device& device = cluster.device;
  device.name = "this processor";
  device.memory_gib = static_cast<double>(usable_memory_bytes()) / kGib;
  for (const measure::DeviceRate& rate :
       measure::measure_device_rates(kHost, {.size = 1024, .copy_bytes = int64_t{1} << 28, .rounds = 3})) {
    if (rate.name == "float32 products") device.fp32_tflops = rate.value;
    if (rate.name == "bf16 products") device.bf16_tflops = rate.value;
    if (rate.name == "copy on the device") device.memory_gb_s = rate.value;
  }
  device.node_gb_s = device.host_gb_s = device.memory_gb_s / 2.0;
  // The rates are those that products reach.
  device.product_share = 1.0;
  device.attention_share = device.flash2_share = 0.6;
  cluster.context_gib = static_cast<double>(current_rss_bytes()) / kGib;
  return cluster;
}

Question question_of(const PlanOptions& options, const config::Recipe& recipe) {
  Question question;
  const bool is_processor = options.cluster == "cpu";
  question.cluster = is_processor ? this_processor() : planner::load_cluster(options.cluster);
  // Work on a processor starts in no time.
  if (is_processor) question.software.forward_kernels = question.software.backward_kernels = 0.0;
  question.kept = train::kept_choice(recipe);
  const std::string problem = planner::why_not(question.cluster.device, question.kept.precision);
  if (!problem.empty()) {
    throw Error(ErrorKind::Config, "CLUSTER", problem)
        .at(recipe.place_of({"fp8", "bf16", "fp16", "dtype"}))
        .hint(question.cluster.device.fp16_tflops > 0
                  ? "fp16: true computes in float16"
                  : "leave bf16, fp16 and fp8 out: float32 works everywhere");
  }
  const models::BaseModel base = models::BaseModel::open(recipe.base_model);
  question.work = train::work_of(*models::build_model(base.config(), at::kFloat), base.config());
  question.job = train::job_of(recipe, question.cluster.size());
  if (options.sequences_per_step > 0) question.job.sequences_per_step = options.sequences_per_step;
  return question;
}

void print_question(const PlanOptions& options, const Question& question) {
  const planner::Cluster& cluster = question.cluster;
  std::printf("%s on %s: %s of %s, %s devices\n", options.recipe.c_str(), options.cluster.c_str(),
              cluster.nodes == 1 ? "1 node" : (std::to_string(cluster.nodes) + " nodes").c_str(),
              (std::to_string(cluster.devices_per_node) + " x " + cluster.device.name).c_str(),
              group_digits(cluster.size()).c_str());
  std::printf("model of %.2f billion parameters in %lld blocks; a step has %s sequences of %s tokens\n",
              question.work.parameters() * 1e-9, static_cast<long long>(question.work.layers),
              group_digits(question.job.sequences_per_step).c_str(),
              group_digits(question.job.sequence).c_str());
}

// Counts what the plan takes, and sets what it holds elsewhere apart.
CountedPlan count(const PlanOptions& options, const Question& question, const planner::Plan& plan) {
  CountedPlan counted{plan};
  counted.host_bytes = plan.memory.host;
  counted.drive_bytes = plan.memory.drive;
  for (const train::RankMemory& rank :
       train::count_memory(options.recipe, options.overrides, question.job, plan.choice)) {
    auto tensors = static_cast<double>(rank.peak.total());
    if (plan.choice.offload != planner::Offload::None)
      tensors -= static_cast<double>(rank.peak.of(MemoryCategory::OptimizerState));
    counted.device_bytes.push_back(tensors * planner::kFragmentation + question.cluster.context_gib * kGib);
  }
  return counted;
}

bool has_same_axes(const planner::Choice& a, const planner::Choice& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.zero == b.zero;
}

// Counts the memory of the fastest plans until `top` of them fit, each with other axes. The search's sum may
// be too low.
std::vector<CountedPlan> count_best(const PlanOptions& options, const Question& question,
                                    const std::vector<planner::Plan>& plans) {
  constexpr int kMostCounts = 24;
  std::vector<CountedPlan> counted;
  const log::Silence silence;
  std::string refusal;
  int counts = 0;
  for (const planner::Plan& plan : plans) {
    if (std::ssize(counted) == options.top || counts == kMostCounts) break;
    const bool is_listed = std::any_of(counted.begin(), counted.end(), [&](const CountedPlan& other) {
      return has_same_axes(other.plan.choice, plan.choice);
    });
    if (is_listed) continue;
    ++counts;
    try {
      CountedPlan own = count(options, question, plan);
      if (own.most() <= question.cluster.device.memory_gib * kGib) counted.push_back(std::move(own));
    } catch (const Error& error) {
      // The trainer refuses this product of keys for this model.
      refusal = error.what();
    }
  }
  if (counted.empty() && !refusal.empty())
    throw Error(ErrorKind::Config, "PLAN", "no plan can be trained; the last one was refused").got(refusal);
  return counted;
}

[[noreturn]] void refuse(const Question& question, const planner::SearchResult& found) {
  const planner::Cluster& cluster = question.cluster;
  if (found.examined == 0) {
    throw Error(ErrorKind::Config, "PLAN", "no product of axes deals the step's sequences evenly")
        .got(group_digits(question.job.sequences_per_step) + " sequences a step, " +
             group_digits(cluster.size()) + " devices")
        .hint("choose --sequences so that the devices that read data divide it");
  }
  std::vector<std::string> texts;
  for (const planner::Change& change :
       planner::changes_that_fit(question.work, cluster, question.job, question.kept, question.software)) {
    texts.push_back(change.text + " (" + group_digits(static_cast<int64_t>(change.plan.time.tokens_per_s())) +
                    " tokens/s)");
  }
  const std::string least =
      found.nearest
          ? format_bytes(static_cast<int64_t>(found.nearest->memory.device())) + " of a device at least"
          : "more than the search's sum";
  throw Error(ErrorKind::Memory, "CANNOT-FIT",
              "no plan fits " + std::to_string(cluster.size()) + " x " + cluster.device.name)
      .got(least)
      .need(format_bytes(static_cast<int64_t>(cluster.device.memory_gib * kGib)))
      .hint(texts.empty() ? "nothing that the planner knows makes it fit"
                          : "it would fit with " + join(texts, ", or with "));
}

// Prints the fastest plan of each other precision, adapter and base: these change what is learned.
void print_alternatives(const Question& question) {
  const planner::Choice& kept = question.kept;
  std::vector<planner::Choice> others;
  const auto add = [&](auto change) {
    planner::Choice other = kept;
    change(other);
    if (other != kept && planner::why_not(question.cluster.device, other.precision).empty())
      others.push_back(other);
  };
  add([](planner::Choice& c) { c.precision = planner::Precision::BFloat16; });
  add([](planner::Choice& c) { c.precision = planner::Precision::Fp8; });
  if (kept.adapter_rank == 0) {
    add([](planner::Choice& c) { c.adapter_rank = 16; });
    add([](planner::Choice& c) {
      c.adapter_rank = 16;
      c.base = planner::Base::FourBit;
    });
  }
  bool has_title = false;
  for (const planner::Choice& other : others) {
    const planner::SearchResult found =
        planner::search(question.work, question.cluster, question.job, other, question.software);
    if (found.plans.empty()) continue;
    if (!has_title)
      std::printf("\nkeys that change what is learned, at their fastest (memory not counted)\n");
    has_title = true;
    std::printf("   %12s  %s\n",
                group_digits(static_cast<int64_t>(found.plans.front().time.tokens_per_s())).c_str(),
                describe(found.plans.front().choice).c_str());
  }
}

void write_recipe(const PlanOptions& options, const std::vector<std::string>& lines) {
  std::vector<std::string> overrides = options.overrides;
  for (std::string& line : train::as_overrides(lines)) overrides.push_back(std::move(line));
  overrides.insert(overrides.end(), {"pipeline_microbatches=", "pipeline_split="});
  const config::Recipe recipe = config::with_absolute_paths(config::load_recipe(options.recipe, overrides));
  io::write_file_atomic(options.write_to, config::write_yaml(recipe, config::KeysToWrite::Given));
  std::printf("\nwrote %s\n", options.write_to.c_str());
}

int plan_run(const PlanOptions& options) {
  if (!options.write_to.empty()) {
    io::check_output_file({.path = options.write_to,
                           .named_by = "--write",
                           .inputs = {{options.recipe, "the recipe"}},
                           .overwrites = options.overwrite});
  }
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  const Question question = question_of(options, recipe);
  print_question(options, question);
  const Timer timer;
  const planner::SearchResult found =
      planner::search(question.work, question.cluster, question.job, question.kept, question.software);
  if (found.plans.empty()) refuse(question, found);
  std::printf("%s choices examined in %.2f s, %s of them fit\n", group_digits(found.examined).c_str(),
              timer.seconds(), group_digits(found.fitting).c_str());
  const std::vector<CountedPlan> plans = count_best(options, question, found.plans);
  if (plans.empty()) refuse(question, found);
  print_plans(plans, question.cluster);
  const planner::Plan& best = plans.front().plan;
  print_run(plans.front(), question.cluster,
            options.tokens > 0.0 ? std::ceil(options.tokens / best.time.tokens) : question.job.steps);
  if (options.explains) print_terms(best, question.cluster);
  print_alternatives(question);
  const std::vector<std::string> lines = best.choice.recipe_lines(question.job);
  std::printf("\nlines of the first plan for the recipe\n");
  for (const std::string& line : lines) std::printf("  %s\n", line.c_str());
  if (!options.write_to.empty()) write_recipe(options, lines);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Find the fastest way to run a training on a cluster");
  verb->add_option("recipe", options->recipe, "The recipe");
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option(
      "--cluster", options->cluster,
      "A YAML file of devices and links, a name such as 8xH100 or 64x8xH100, or cpu for this machine");
  verb->add_option("--sequences", options->sequences_per_step,
                   "Sequences of a step, in place of the recipe's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  verb->add_option("--tokens", options->tokens, "Tokens of the whole run, for time, cost and energy")
      ->check(CLI::PositiveNumber);
  verb->add_option("--top", options->top, "Plans to print")->check(CLI::Range(1, 20));
  verb->add_flag("--explain", options->explains, "Show every term of the first plan's sum");
  verb->add_flag("--rules", options->shows_rules,
                 "Show the guidelines of the field with their reasons, and end");
  verb->add_option("--write", options->write_to, "Write the recipe with the first plan's lines to this file");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->footer(
      "Every product of axes, ZeRO stages, schedules, micro-batches, recomputation and offload is judged by "
      "a "
      "sum\nof its time and memory; the memory of the fastest is then counted as `tessera estimate` does. "
      "docs/planner.md\nhas the keys of a cluster, the sum, and its error on published measurements.");
  line.set_action(*verb, [options] {
    if (options->shows_rules) {
      print_rules();
      return 0;
    }
    for (const auto& [value, name] :
         {std::pair(&options->recipe, "a recipe"), std::pair(&options->cluster, "--cluster")}) {
      if (value->empty())
        throw Error(ErrorKind::Config, "PLAN", std::string(name) + " is missing")
            .at("command line")
            .need(name);
    }
    return plan_run(*options);
  });
}

}  // namespace tessera::cli
