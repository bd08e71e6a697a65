#include "tessera/train/setup/measured_split.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/measure/measure_parts.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {
namespace {

measure::MeasureOptions measure_options(const config::Recipe& recipe, const models::CausalLM& model,
                                        at::Device device) {
  // So many tokens tell how the parts compare in a long micro-batch, too.
  constexpr int64_t kMostTokens = 4096;
  measure::MeasureOptions options{.device = device, .dtype = run_types(recipe).compute};
  options.document_tokens = std::min(recipe.sequence_len, kMostTokens);
  if (const auto& bound = model.config().document_bound; bound.has_value())
    options.document_tokens = std::min(options.document_tokens, bound->tokens);
  options.documents = std::clamp<int64_t>(kMostTokens / options.document_tokens, 1, recipe.micro_batch_size);
  if (recipe.gradient_checkpointing == config::Checkpointing::Block)
    options.checkpoint_every = recipe.gradient_checkpointing_every;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  return options;
}

// Returns the mean over the ranks, the same bits on all. Collective.
parallel::PartCosts agreed(const parallel::PartCosts& own, comm::Communicator& world) {
  std::vector<double> values = {own.first};
  values.insert(values.end(), own.blocks.begin(), own.blocks.end());
  values.push_back(own.last);
  const at::Tensor sums = at::tensor(values, on_host(at::kDouble));
  world.all_reduce(sums, false, {comm::hint("times of the model's parts")});
  const auto all = host_span<const double>(sums);
  const auto ranks = static_cast<double>(world.size());
  parallel::PartCosts mean{all.front() / ranks, {}, all.back() / ranks};
  for (size_t i = 1; i + 1 < all.size(); ++i) mean.blocks.push_back(all[i] / ranks);
  return mean;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", seconds * 1e3);
  return text;
}

// Describes the split: "pipeline: 3 + 2 layers, 30.1 + 29.8 ms of a micro-batch (embedding 0.1, a layer 10.0,
// output and loss 9.8)".
std::string describe(const parallel::PartCosts& costs, const std::vector<int64_t>& bounds,
                     int64_t num_ranks) {
  std::string layers, times, of_ranks;
  std::vector<double> sums(static_cast<size_t>(num_ranks), 0.0);
  for (size_t stage = 0; stage + 1 < bounds.size(); ++stage) {
    double time = stage == 0 ? costs.first : 0.0;
    for (int64_t i = bounds[stage]; i < bounds[stage + 1]; ++i) time += costs.blocks[i];
    if (stage + 2 == bounds.size()) time += costs.last;
    layers += (stage == 0 ? "" : " + ") + std::to_string(bounds[stage + 1] - bounds[stage]);
    times += (stage == 0 ? "" : " + ") + milliseconds(time);
    sums[stage % sums.size()] += time;
  }
  if (bounds.size() - 1 > sums.size()) {
    for (const double sum : sums) of_ranks += (of_ranks.empty() ? ", by rank " : " + ") + milliseconds(sum);
  }
  const auto [least, most] = std::ranges::minmax(costs.blocks);
  return "pipeline: " + layers + " layers, " + times + " ms of a micro-batch" + of_ranks + " (embedding " +
         milliseconds(costs.first) + ", a layer " + milliseconds(least) +
         (least < most ? " to " + milliseconds(most) : "") + ", output and loss " + milliseconds(costs.last) +
         ")";
}

}  // namespace

void measure_split(config::Recipe& recipe, PlannedModel& planned, comm::Communicator& world) {
  if (recipe.pipeline_split_by != config::SplitBasis::Time || !planned.pipeline) return;
  models::CausalLM& model = *planned.model;
  const parallel::PartCosts costs =
      agreed(measure::measure_parts(model, measure_options(recipe, model, world.device())), world);
  parallel::PipelineOptions options = planned.pipeline->options;
  const int64_t num_ranks = planned.pipeline->num_ranks;
  const std::vector<int64_t> bounds = parallel::split_blocks(costs, num_ranks, options.stages_per_rank);
  options.split.clear();
  for (size_t stage = 1; stage < bounds.size(); ++stage)
    options.split.push_back(bounds[stage] - bounds[stage - 1]);
  planned.pipeline = models::plan_pipeline(model, num_ranks, options);
  recipe.pipeline_split = options.split;
  recipe.pipeline_split_by = config::SplitBasis::Work;
  log::info(describe(costs, bounds, num_ranks));
}

}  // namespace tessera::train
