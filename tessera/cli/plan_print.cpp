#include "tessera/cli/plan_print.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/planner/plan_page.h"
#include "tessera/planner/published_tables.h"
#include "tessera/planner/rules.h"

namespace tessera::cli {
namespace {

using planner::Choice;
using planner::Term;

std::string bytes_text(double bytes) { return format_bytes(static_cast<int64_t>(bytes)); }

std::string precision_text(const Choice& choice) {
  std::string text(planner::precision_name(choice.precision));
  if (choice.pure_bf16) text += " weights";
  if (choice.codes_weights || choice.codes_gradients) text += ", sent in codes";
  if (choice.adapter_rank > 0) text += choice.base == planner::Base::FourBit ? ", qlora" : ", lora";
  return text;
}

}  // namespace

double CountedPlan::most() const { return *std::max_element(device_bytes.begin(), device_bytes.end()); }

std::string describe(const Choice& choice) {
  std::vector<std::string> parts;
  const auto size = [&](const char* name, int64_t value) {
    if (value > 1) parts.push_back(name + (" " + std::to_string(value)));
  };
  size("replicas", choice.dp_replicate);
  size("shards", choice.dp_shard);
  size("cp", choice.cp);
  size("tp", choice.tp);
  size("pp", choice.pp);
  size("ep", choice.ep);
  if (choice.shards() > 1) parts.push_back("zero " + std::to_string(choice.zero));
  size("hpz", choice.hpz);
  if (choice.pp > 1) {
    parts.emplace_back(choice.schedule == PipelineKind::Interleaved
                           ? "interleaved " + std::to_string(choice.stages_per_rank)
                       : choice.schedule == PipelineKind::ZeroBubble ? "zero_bubble"
                                                                     : "1f1b");
  }
  parts.push_back("batch " + std::to_string(choice.micro_batch) + " x " +
                  std::to_string(choice.accumulation));
  if (choice.recompute != planner::Recompute::None)
    parts.emplace_back(choice.recompute == planner::Recompute::Mlp ? "recompute mlp" : "recompute blocks");
  if (choice.offload != planner::Offload::None)
    parts.emplace_back(choice.offload == planner::Offload::HostStates ? "states on the host"
                                                                      : "states on the drive");
  parts.push_back(precision_text(choice));
  return join(parts, ", ");
}

void print_json(const std::vector<CountedPlan>& plans, const planner::Job& job) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const CountedPlan& counted : plans) {
    const planner::StepTime& time = counted.plan.time;
    nlohmann::ordered_json terms = nlohmann::ordered_json::object();
    for (size_t i = 0; i < planner::kNumTerms; ++i)
      terms[std::string(term_name(static_cast<Term>(i)))] = time.seconds[i];
    all.push_back({{"recipe_lines", counted.plan.choice.recipe_lines(job)},
                   {"tokens_per_s", time.tokens_per_s()},
                   {"step_s", time.total()},
                   {"mfu", time.mfu()},
                   {"hfu", time.hfu()},
                   {"limit", term_name(time.limit())},
                   {"device_bytes", counted.device_bytes},
                   {"estimated_bytes", counted.plan.memory.device()},
                   {"host_bytes", counted.host_bytes},
                   {"drive_bytes", counted.drive_bytes},
                   {"seconds", terms}});
  }
  std::printf("%s\n", nlohmann::ordered_json{{"plans", all}}.dump().c_str());
}

void print_plans(const std::vector<CountedPlan>& plans, const planner::Cluster& cluster) {
  std::printf("\n   %12s %8s %6s %6s %10s  %s\n", "tokens/s", "step", "MFU", "HFU", "memory", "limit");
  for (size_t i = 0; i < plans.size(); ++i) {
    const planner::StepTime& time = plans[i].plan.time;
    std::printf("%zu  %12s %7.2fs %5.1f%% %5.1f%% %10s  %s, %.0f %%\n   %s\n", i + 1,
                group_digits(static_cast<int64_t>(time.tokens_per_s())).c_str(), time.total(),
                100.0 * time.mfu(), 100.0 * time.hfu(), bytes_text(plans[i].most()).c_str(),
                std::string(planner::term_name(time.limit())).c_str(),
                100.0 * time.of(time.limit()) / time.total(), describe(plans[i].plan.choice).c_str());
  }
  std::printf("\nmemory of a rank at its peak, counted by following two steps, of %.1f GiB\n",
              cluster.device.memory_gib);
  for (size_t i = 0; i < plans.size(); ++i) {
    std::string stages;
    for (const double bytes : plans[i].device_bytes)
      stages += (stages.empty() ? "" : ", ") + bytes_text(bytes);
    std::printf("%zu  device %s%s", i + 1, stages.c_str(),
                plans[i].device_bytes.size() > 1 ? " (first and last stage)" : "");
    if (plans[i].host_bytes > 0.0) std::printf("; host %s", bytes_text(plans[i].host_bytes).c_str());
    if (plans[i].drive_bytes > 0.0) std::printf("; drive %s", bytes_text(plans[i].drive_bytes).c_str());
    std::printf("\n");
  }
}

void print_run(const CountedPlan& plan, const planner::Cluster& cluster, double steps) {
  const planner::StepTime& time = plan.plan.time;
  const double tokens = steps > 0.0 ? steps * time.tokens : 1e9;
  const double seconds = tokens / time.tokens_per_s();
  const auto devices = static_cast<double>(plan.plan.choice.ranks());
  if (steps > 0.0) {
    std::printf("\nto the end (%.0f steps, %.3g tokens): %s", steps, tokens,
                format_duration(seconds).c_str());
  } else {
    std::printf("\na billion tokens (max_steps or --tokens says how many there are): %s",
                format_duration(seconds).c_str());
  }
  if (cluster.device.watts > 0.0) {
    std::printf(", at most %.4g kWh (devices alone, at full power)",
                cluster.device.watts * devices * seconds / 3.6e6);
  }
  if (cluster.price_per_hour > 0.0)
    std::printf(", cost %.2f", cluster.price_per_hour * devices * seconds / 3600.0);
  std::printf("\n");
}

void print_terms(const planner::Plan& plan, const planner::Cluster& cluster) {
  std::printf(
      "\nterms of a step of the first plan, in seconds; what hides behind the compute is not counted\n");
  for (size_t i = 0; i < planner::kNumTerms; ++i) {
    const auto term = static_cast<Term>(i);
    if (plan.time.of(term) == 0.0) continue;
    std::printf("  %-20s %9.4f %5.1f %%  %s\n", std::string(planner::term_name(term)).c_str(),
                plan.time.of(term), 100.0 * plan.time.of(term) / plan.time.total(),
                std::string(planner::term_meaning(term)).c_str());
  }
  std::printf("  %-20s %9.4f\n", "step", plan.time.total());
  const planner::Device& device = cluster.device;
  std::printf("  %.4g model flops and %.4g done, of %.4g a second at the peak; share %.3f, half %.0f\n",
              plan.time.model_flops, plan.time.done_flops, plan.time.peak_flops, device.product_share,
              planner::kHalfDim);
  std::printf("\nits memory as the search estimates it\n");
  const planner::MemoryUse& memory = plan.memory;
  const auto row = [](const char* name, double bytes) {
    if (bytes > 0.0) std::printf("  %-20s %10s\n", name, bytes_text(bytes).c_str());
  };
  row("weights", memory.weights);
  row("gradients", memory.gradients);
  row("optimizer states", memory.states);
  row("gathered", memory.gathered);
  row("activations", memory.activations);
  row("loss", memory.loss);
  row("program, allocator", memory.program);
  row("device", memory.device());
  row("host", memory.host);
  row("drive", memory.drive);
}

void print_rules() {
  int number = 0;
  for (const planner::Rule& rule : planner::rules()) {
    std::printf("%s%2d. %s\n    %s\n    [%s]\n", number == 0 ? "" : "\n", number + 1,
                std::string(rule.rule).c_str(), std::string(rule.reason).c_str(),
                std::string(rule.source).c_str());
    ++number;
  }
}

void print_devices() {
  for (const std::string& line : planner::device_table()) std::printf("%s\n", line.c_str());
}

void print_published(const std::string& name) {
  const std::vector<planner::PublishedTable> tables = planner::published_tables();
  std::vector<std::string> names;
  bool is_known = name == "all";
  for (const planner::PublishedTable& table : tables) {
    names.emplace_back(table.name);
    is_known = is_known || table.name == name;
  }
  if (!is_known) {
    throw Error(ErrorKind::Config, "PLAN", "there is no such table")
        .at("--table")
        .got(name)
        .need(join(names, ", ") + " or all");
  }
  for (const planner::PublishedTable& table : tables) {
    if (name != "all" && table.name != name) continue;
    std::vector<size_t> widths;
    for (const std::string& title : table.heading) widths.push_back(title.size());
    for (const auto& row : table.rows) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    const auto print_row = [&](const std::vector<std::string>& row) {
      for (size_t i = 0; i < row.size(); ++i)
        std::printf("%s%-*s", i == 0 ? "  " : "   ", static_cast<int>(widths[i]), row[i].c_str());
      std::printf("\n");
    };
    std::printf("%s: %s\n", std::string(table.name).c_str(), std::string(table.title).c_str());
    print_row(table.heading);
    for (const auto& row : table.rows) print_row(row);
    std::printf("  source: %s\n", std::string(table.source).c_str());
    if (!table.note.empty()) std::printf("  note: %s\n", std::string(table.note).c_str());
    std::printf("\n");
  }
}

std::string page_of(const std::string& title, const std::vector<CountedPlan>& plans,
                    const std::vector<planner::Plan>& found, const planner::Cluster& cluster,
                    const planner::Job& job, planner::SimulatedStep step) {
  constexpr size_t kMostNames = 500;
  planner::PlanPage page;
  page.title = title;
  page.device_bytes = cluster.device.memory_gib * 0x1p30;
  page.candidates = found;
  page.step = std::move(step);
  page.recipe_lines = plans.front().plan.choice.recipe_lines(job);
  for (size_t i = 0; i < std::min(kMostNames, found.size()); ++i)
    page.names.push_back(describe(found[i].choice));
  page.table.push_back({"plan", "tokens/s", "step, s", "MFU", "memory", "limit"});
  for (size_t i = 0; i < plans.size(); ++i) {
    const planner::StepTime& time = plans[i].plan.time;
    char step_s[24], mfu[24];
    std::snprintf(step_s, sizeof step_s, "%.2f", time.total());
    std::snprintf(mfu, sizeof mfu, "%.1f %%", 100.0 * time.mfu());
    page.table.push_back({std::to_string(i + 1) + ": " + describe(plans[i].plan.choice),
                          group_digits(static_cast<int64_t>(time.tokens_per_s())), step_s, mfu,
                          bytes_text(plans[i].most()), std::string(term_name(time.limit()))});
    const bool has_stages = plans[i].kinds.size() > 1;
    for (size_t stage = 0; stage < plans[i].kinds.size(); ++stage) {
      page.bars.push_back({"plan " + std::to_string(i + 1) +
                               (!has_stages  ? ""
                                : stage == 0 ? ", first stage"
                                             : ", last stage"),
                           plans[i].kinds[stage]});
    }
    const auto same = std::ranges::find_if(
        found, [&](const planner::Plan& plan) { return plan.choice == plans[i].plan.choice; });
    page.shown.push_back(static_cast<size_t>(same - found.begin()));
  }
  return planner::plan_page(page);
}

}  // namespace tessera::cli
