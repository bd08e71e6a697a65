// The verb `tessera estimate`.
#include "tessera/train/run/estimate.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/measure/known_estimates.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/registry.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::cli {
namespace {

struct EstimateOptions {
  std::string recipe, model;
  std::vector<std::string> overrides;
  int64_t nproc = 1;
  bool as_json = false, as_deepspeed = false, as_accelerate = false;
  measure::ModelCounts counts;
  int64_t gpus_per_node = 1, nodes = 1;
  std::string zero2 = "documented";
};

// The memory of one rank.
struct Column {
  train::RankMemory memory;
  int64_t program_bytes = 0;
  int64_t total() const { return memory.peak.total() + program_bytes; }
};

void print_table(const std::vector<Column>& columns, int64_t num_ranks) {
  std::printf("memory of a rank, of %lld%s\n", static_cast<long long>(num_ranks),
              columns.size() > 1 ? ", by stage of the pipeline" : "");
  const auto row = [&](const std::string& name, const auto& bytes_of) {
    const bool is_empty =
        std::ranges::all_of(columns, [&](const Column& column) { return bytes_of(column) == 0; });
    if (is_empty) return;
    std::printf("  %-24s", name.c_str());
    for (const Column& column : columns) std::printf(" %10s", format_bytes(bytes_of(column)).c_str());
    std::printf("\n");
  };
  for (size_t i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    row(std::string(memory_category_name(category)),
        [&](const Column& column) { return column.memory.peak.of(category); });
  }
  row("program", [](const Column& column) { return column.program_bytes; });
  row("peak", [](const Column& column) { return column.total(); });
}

void print_json(const std::vector<Column>& columns, int64_t num_ranks) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const Column& column : columns) {
    nlohmann::ordered_json peak = nlohmann::ordered_json::object(), most = peak;
    for (size_t i = 0; i < kNumMemoryCategories; ++i) {
      const auto category = static_cast<MemoryCategory>(i);
      const std::string name(memory_category_name(category));
      peak[name] = column.memory.peak.of(category);
      most[name] = column.memory.most.of(category);
    }
    peak["program"] = column.program_bytes;
    ranks.push_back({{"rank", column.memory.rank},
                     {"total_bytes", column.total()},
                     {"peak_bytes", peak},
                     {"most_bytes", most}});
  }
  std::printf("%s\n", nlohmann::ordered_json{{"ranks", num_ranks}, {"memory", ranks}}.dump().c_str());
}

int estimate_run(const EstimateOptions& options) {
  const config::Recipe recipe = config::load_recipe(options.recipe, options.overrides, "");
  const bool is_on_gpu = train::device_of(recipe.device, recipe).type() != kHost;
  std::vector<Column> columns;
  for (const int64_t rank : train::ranks_to_estimate(recipe, options.nproc))
    columns.push_back({train::estimate_memory(recipe, options.nproc, rank)});
  // On the host a process also has its code, tables of symbols and the heap of the start, which this process
  // has too, the scratch memory of the kernels' threads, and buffers for messages to other ranks.
  constexpr int64_t kScratchBytes = int64_t{16} << 20, kMessageBytes = int64_t{12} << 20;
  const int64_t program =
      is_on_gpu ? 0 : current_rss_bytes() + kScratchBytes + (options.nproc > 1 ? kMessageBytes : 0);
  for (Column& column : columns) column.program_bytes = program;
  options.as_json ? print_json(columns, options.nproc) : print_table(columns, options.nproc);
  return 0;
}

// The sizes of a model that the tables of other tools are made of.
struct ModelSizes {
  measure::ModelCounts counts;
  // Parameters of the largest block, or of the largest module outside of all blocks.
  int64_t largest_block = 0;
};

ModelSizes sizes_of(const std::string& folder) {
  const auto model = models::build_model(models::BaseModel::open(folder).config(), at::kFloat);
  const auto count = [](const torch::nn::Module& module, bool recurse) {
    int64_t parameters = 0;
    for (const auto& parameter : module.parameters(recurse)) parameters += parameter.numel();
    return parameters;
  };
  ModelSizes sizes;
  const auto named = model->named_parameters();
  for (const auto& entry : named) sizes.counts.parameters += entry.value().numel();
  std::set<const torch::nn::Module*> in_blocks;
  for (const auto& block : model->blocks()) {
    sizes.largest_block = std::max(sizes.largest_block, count(*block, true));
    for (const auto& module : block->modules()) in_blocks.insert(module.get());
  }
  for (const auto& module : model->modules()) {
    const int64_t own = count(*module, false);
    sizes.counts.largest_layer = std::max(sizes.counts.largest_layer, own);
    if (!in_blocks.contains(module.get())) sizes.largest_block = std::max(sizes.largest_block, own);
  }
  return sizes;
}

int print_known(const EstimateOptions& options) {
  ModelSizes sizes{options.counts};
  if (!options.model.empty()) {
    sizes = sizes_of(options.model);
  } else if (options.as_accelerate || options.counts.parameters == 0) {
    throw Error(ErrorKind::Config, "ESTIMATE", "the tables of other tools need the size of a model")
        .at("command line")
        .need(options.as_accelerate ? "--model" : "--model, or --params and --largest-layer");
  }
  if (options.as_accelerate) {
    std::printf("%s",
                measure::accelerate_table(options.model, 4 * sizes.largest_block, 4 * sizes.counts.parameters)
                    .c_str());
    return 0;
  }
  const auto formula =
      options.zero2 == "documented" ? measure::Zero2Formula::Documented : measure::Zero2Formula::Later;
  std::printf(
      "ZeRO stage 2\n%s\nZeRO stage 3\n%s",
      measure::deepspeed_zero2_table(sizes.counts, options.gpus_per_node, options.nodes, formula).c_str(),
      measure::deepspeed_zero3_table(sizes.counts, options.gpus_per_node, options.nodes).c_str());
  return 0;
}

}  // namespace

void add_estimate(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<EstimateOptions>();
  CLI::App* verb = app.add_subcommand("estimate", "Estimate how much memory a training run takes");
  CLI::Option* const recipe = verb->add_option("recipe", options->recipe, "The recipe");
  verb->add_option("overrides", options->overrides, "key=value");
  verb->add_option("--nproc", options->nproc, "Number of ranks of the training run")
      ->check(CLI::Range(1, 100000));
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  CLI::Option* const deepspeed = verb->add_flag("--deepspeed", options->as_deepspeed,
                                                "Print the tables of DeepSpeed's estimators instead");
  CLI::Option* const accelerate = verb->add_flag("--accelerate", options->as_accelerate,
                                                 "Print the table of `accelerate estimate-memory` instead");
  line.add_model(*verb, "--model", options->model, "Model for --deepspeed or --accelerate");
  verb->add_option("--params", options->counts.parameters,
                   "Number of parameters for --deepspeed; default: counted from --model")
      ->check(CLI::PositiveNumber);
  verb->add_option("--largest-layer", options->counts.largest_layer,
                   "Number of parameters of the largest layer; default: counted from --model")
      ->check(CLI::PositiveNumber);
  verb->add_option("--gpus-per-node", options->gpus_per_node, "GPUs of a node, for --deepspeed")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--nodes", options->nodes, "Nodes, for --deepspeed")->check(CLI::Range(1, 100000));
  verb->add_option("--zero2-formula", options->zero2,
                   "Formula for ZeRO stage 2: of DeepSpeed's documentation, or of its later code")
      ->check(CLI::IsMember({"documented", "later"}));
  deepspeed->excludes(recipe)->excludes(accelerate);
  accelerate->excludes(recipe);
  verb->footer(
      "Runs two steps of the training on tensors without storage and counts the memory that they would "
      "take.\n"
      "Reads only the headers of the model's files.");
  line.set_action(*verb, [options] {
    if (options->as_deepspeed || options->as_accelerate) return print_known(*options);
    if (options->recipe.empty())
      throw Error(ErrorKind::Config, "ESTIMATE", "no recipe is given").at("command line").need("a recipe");
    return estimate_run(*options);
  });
}

}  // namespace tessera::cli
