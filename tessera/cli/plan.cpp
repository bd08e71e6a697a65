// The verb `tessera plan`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/plan_print.h"
#include "tessera/cli/plan_question.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/planner/plan_page.h"
#include "tessera/planner/search.h"
#include "tessera/train/run/planned_work.h"

namespace tessera::cli {
namespace {

struct PlanOptions {
  std::string recipe, cluster, write_to, html, table;
  std::vector<std::string> overrides;
  int64_t top = 3, sequences_per_step = 0;
  double tokens = 0.0;
  bool explains = false, shows_rules = false, shows_devices = false, overwrite = false, as_json = false;
};

constexpr double kGib = 0x1p30;

void print_question(const PlanOptions& options, const PlanQuestion& question) {
  const planner::Cluster& cluster = question.cluster;
  std::printf("%s on %s: %s of %s, %s %s\n", options.recipe.c_str(), options.cluster.c_str(),
              cluster.nodes == 1 ? "1 node" : (std::to_string(cluster.nodes) + " nodes").c_str(),
              (std::to_string(cluster.devices_per_node) + " x " + cluster.device.name).c_str(),
              group_digits(cluster.size()).c_str(), cluster.size() == 1 ? "device" : "devices");
  std::printf("model of %.2f billion parameters in %lld blocks; a step has %s %s of %s tokens\n",
              question.work.parameters() * 1e-9, static_cast<long long>(question.work.layers),
              group_digits(question.job.sequences_per_step).c_str(),
              question.job.sequences_per_step == 1 ? "sequence" : "sequences",
              group_digits(question.job.sequence).c_str());
}

// Counts the memory of the plan; the part that it keeps off the device is counted separately.
CountedPlan count(const PlanOptions& options, const PlanQuestion& question, const planner::Plan& plan) {
  CountedPlan counted{plan};
  counted.host_bytes = plan.memory.host;
  counted.drive_bytes = plan.memory.drive;
  for (const train::RankMemory& rank :
       train::count_memory(options.recipe, options.overrides, question.job, plan.choice)) {
    auto& kinds = counted.kinds.emplace_back();
    double tensors = 0.0;
    for (size_t i = 0; i < kNumMemoryCategories; ++i) {
      const auto category = static_cast<MemoryCategory>(i);
      if (category == MemoryCategory::OptimizerState && plan.choice.offload != planner::Offload::None)
        continue;
      kinds.emplace_back(memory_category_name(category), static_cast<double>(rank.peak.of(category)));
      tensors += kinds.back().second;
    }
    kinds.emplace_back("program and allocator",
                       tensors * (planner::kFragmentation - 1.0) + question.cluster.context_gib * kGib);
    counted.device_bytes.push_back(tensors + kinds.back().second);
  }
  return counted;
}

bool has_same_axes(const planner::Choice& a, const planner::Choice& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.zero == b.zero;
}

// Counts the memory of the fastest plans until `top` of them fit, each with other axes. The search's sum may
// be too low: what a count finds beyond it is expected of the other plans of its kind, too.
std::vector<CountedPlan> count_best(const PlanOptions& options, const PlanQuestion& question,
                                    const std::vector<planner::Plan>& plans) {
  constexpr int kMostCounts = 24;
  using Kind = std::tuple<PipelineKind, bool, int64_t, planner::Recompute>;
  const double room = question.cluster.device.memory_gib * kGib;
  std::map<Kind, double> beyond;  // the largest count over its sum
  std::vector<CountedPlan> counted;
  const log::Silence silence;
  std::string refusal;
  int counts = 0;
  for (const planner::Plan& plan : plans) {
    if (std::ssize(counted) == options.top || counts == kMostCounts) break;
    const bool is_listed = std::any_of(counted.begin(), counted.end(), [&](const CountedPlan& other) {
      return has_same_axes(other.plan.choice, plan.choice);
    });
    const planner::Choice& choice = plan.choice;
    double& factor = beyond.try_emplace({choice.schedule, choice.pp > 1, choice.zero, choice.recompute}, 1.0)
                         .first->second;
    if (is_listed || factor * plan.memory.device() > room) continue;
    ++counts;
    try {
      CountedPlan own = count(options, question, plan);
      factor = std::max(factor, own.most() / plan.memory.device());
      if (own.most() <= room) counted.push_back(std::move(own));
    } catch (const Error& error) {
      // The trainer refuses this product of keys for this model.
      refusal = error.what();
    }
  }
  if (counted.empty() && !refusal.empty())
    throw Error(ErrorKind::Config, "PLAN", "no plan can be trained; the last one was refused").got(refusal);
  return counted;
}

[[noreturn]] void refuse(const PlanQuestion& question, const planner::SearchResult& found) {
  const planner::Cluster& cluster = question.cluster;
  const planner::Choice& kept = question.kept;
  if (found.examined == 0 && (kept.codes_weights || kept.codes_gradients) && cluster.size() == 1) {
    throw Error(ErrorKind::Config, "PLAN", "one device shares no parameters, and sends none in codes")
        .hint("leave zero_quantized_weights and zero_quantized_gradients out, or name more devices");
  }
  if (found.examined == 0 && kept.updates_in_backward) {
    throw Error(ErrorKind::Config, "PLAN",
                "no product of axes makes the step in one micro-batch on each rank")
        .got(group_digits(question.job.sequences_per_step) + " sequences a step, " +
             group_digits(cluster.size()) + " devices")
        .need(
            "at most 256 sequences on each rank that reads data, as update_in_backward has one micro-batch");
  }
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
void print_alternatives(const PlanQuestion& question) {
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
  if (kept.adapter_rank == 0 && question.cluster.size() > 1)
    add([](planner::Choice& c) { c.codes_weights = c.codes_gradients = true; });
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
  if (!ranks_of_processor(options.cluster)) {
    overrides.emplace_back("device=");
    overrides.push_back("cluster=" + options.cluster);
  }
  write_changed_recipe(options.recipe, overrides, options.write_to);
}

void write_page(const PlanOptions& options, const PlanQuestion& question,
                const std::vector<planner::Plan>& found, const std::vector<CountedPlan>& plans) {
  io::write_file_atomic(
      options.html,
      page_of(options.recipe + " on " + options.cluster, plans, found, question.cluster, question.job,
              planner::simulate_step(question.work, question.cluster, question.job, plans.front().plan.choice,
                                     {}, question.software)));
  log::info("wrote " + options.html);
}

int plan_run(PlanOptions options) {
  // The recipe's own number of sequences would contradict that of the plan.
  if (options.sequences_per_step > 0) options.overrides.emplace_back("global_batch_size=");
  if (!options.write_to.empty()) {
    io::check_output_file({.path = options.write_to,
                           .named_by = "--write",
                           .inputs = {{options.recipe, "the recipe"}},
                           .overwrites = options.overwrite});
  }
  if (!options.html.empty()) {
    io::check_output_file({.path = options.html,
                           .named_by = "--html",
                           .inputs = {{options.recipe, "the recipe"}, {options.cluster, "the cluster"}},
                           .is_earlier_output = io::begins_with(planner::kPlanPageBegin),
                           .overwrites = options.overwrite});
  }
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  PlanQuestion question = plan_question(recipe, options.cluster);
  if (options.sequences_per_step > 0) question.job.sequences_per_step = options.sequences_per_step;
  if (!options.as_json) print_question(options, question);
  const Timer timer;
  const planner::SearchResult found =
      planner::search(question.work, question.cluster, question.job, question.kept, question.software);
  const double seconds = timer.seconds();
  if (found.plans.empty()) refuse(question, found);
  const std::vector<CountedPlan> plans = count_best(options, question, found.plans);
  if (plans.empty()) refuse(question, found);
  const std::vector<std::string> lines = plans.front().plan.choice.recipe_lines(question.job);
  if (!options.html.empty()) write_page(options, question, found.plans, plans);
  if (options.as_json) {
    print_json(plans, question.job);
    if (!options.write_to.empty()) write_recipe(options, lines);
    return 0;
  }
  std::printf("%s choices examined in %.2f s, %s of them fit\n", group_digits(found.examined).c_str(),
              seconds, group_digits(found.fitting).c_str());
  print_plans(plans, question.cluster);
  const planner::Plan& best = plans.front().plan;
  print_run(plans.front(), question.cluster,
            options.tokens > 0.0 ? std::ceil(options.tokens / best.time.tokens) : question.job.steps);
  if (options.explains) print_terms(best, question.cluster);
  print_alternatives(question);
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
  verb->add_option("--cluster", options->cluster, kClusterHelp);
  verb->add_option("--sequences", options->sequences_per_step, "Sequences of a step; default: the recipe's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  verb->add_option("--tokens", options->tokens,
                   "Tokens of the whole run, to compute its time, cost and energy; default: not computed")
      ->check(CLI::PositiveNumber);
  verb->add_option("--top", options->top, "Plans to print")->check(CLI::Range(1, 20));
  verb->add_flag("--explain", options->explains, "Show every term of the first plan's sum");
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  verb->add_flag("--rules", options->shows_rules,
                 "Show the guidelines of the field with their reasons, and exit");
  verb->add_flag("--devices", options->shows_devices,
                 "Show the devices that are known by name, with their rates, and exit");
  verb->add_option(
      "--table", options->table,
      "Compare a published table with the planner's figures, and exit: zero-7.5b, between-nodes, "
      "fsdp-llama, fsdp-titan, falcon, qlora-65b or all");
  verb->add_option("--write", options->write_to, "Write the recipe with the first plan's lines to this file");
  verb->add_option(
      "--html", options->html,
      "Write a page with the plans' memory, all candidates and the first plan's step to this file");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->footer(
      "Adds up time and memory of every combination of axes, ZeRO stage, schedule, micro-batch, "
      "recomputation\n"
      "and offload; counts the memory of the fastest ones as `tessera estimate` does. docs/planner.md has "
      "the\n"
      "keys of a cluster, the formulas, and their error on published measurements.");
  line.set_action(*verb, [options] {
    if (options->shows_rules) {
      print_rules();
      return 0;
    }
    if (options->shows_devices) {
      print_devices();
      return 0;
    }
    if (!options->table.empty()) {
      print_published(options->table);
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
