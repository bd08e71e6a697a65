// The verb `tessera debug schedule`.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/strings.h"
#include "tessera/parallel/pipeline/picture.h"
#include "tessera/parallel/pipeline/schedule.h"
#include "tessera/parallel/pipeline/simulate.h"

namespace tessera::cli {
namespace {

struct ScheduleOptions {
  std::string kind;
  int64_t ranks = 4, micro_batches = 8, stages_per_rank = 0;
  std::vector<int64_t> costs = {1, 1, 1};
};

const std::map<std::string, PipelineKind>& kinds() {
  static const std::map<std::string, PipelineKind> names = {{"gpipe", PipelineKind::GPipe},
                                                            {"1f1b", PipelineKind::OneFOneB},
                                                            {"interleaved", PipelineKind::Interleaved},
                                                            {"zero_bubble", PipelineKind::ZeroBubble}};
  return names;
}

int print_schedule(const ScheduleOptions& options) {
  const PipelineKind kind = kinds().at(options.kind);
  const int64_t stages = options.stages_per_rank > 0         ? options.stages_per_rank
                         : kind == PipelineKind::Interleaved ? 2
                                                             : 1;
  const parallel::Schedule schedule =
      parallel::make_schedule(kind, {options.ranks, stages, options.micro_batches});
  const parallel::Timeline timeline =
      parallel::simulate(schedule, {options.costs[0], options.costs[1], options.costs[2]});
  std::string text = parallel::picture_of(schedule, timeline);
  std::vector<std::string> peaks;
  for (const int64_t peak : timeline.peak_in_flight) peaks.push_back(std::to_string(peak));
  char bubble[32];
  std::snprintf(bubble, sizeof bubble, "%.1f %%", 100.0 * timeline.bubble_share);
  text += "bubble: " + std::string(bubble) + " of the ranks' time (" + std::to_string(timeline.length) +
          " units long)\nin flight at most: " + join(peaks, ", ") + " micro-batches" +
          (stages > 1 ? " of a stage" : "") + ", by rank\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_debug_schedule(CLI::App& debug, CommandLine& line) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* verb =
      debug.add_subcommand("schedule", "Draw a pipeline schedule, with one row per rank and time in columns");
  verb->add_option("kind", options->kind, "Schedule, as in the recipe's pipeline_schedule")
      ->required()
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zero_bubble"}));
  verb->add_option("--ranks", options->ranks, "pipeline_parallel_size")->check(CLI::Range(1, 64));
  verb->add_option("--micro-batches", options->micro_batches, "Micro-batches per step")
      ->check(CLI::Range(1, 512));
  verb->add_option("--stages-per-rank", options->stages_per_rank,
                   "Stages per rank; 0: 2 for interleaved, otherwise 1")
      ->check(CLI::Range(0, 8));
  verb->add_option("--costs", options->costs,
                   "Time that a stage needs for the forward pass, the input gradients and the weight "
                   "gradients of a micro-batch")
      ->delimiter(',')
      ->expected(3)
      ->check(CLI::Range(0, 100));
  verb->footer(
      "F3 is the forward pass of micro-batch 3 and B3 its backward pass. If the backward pass is split, B3 "
      "computes the\ninput gradients and W3 the weight gradients. A letter distinguishes the stages of a "
      "rank. '=' continues the\nprevious item, '.' is waiting time.");
  line.set_action(*verb, [options] { return print_schedule(*options); });
}

}  // namespace tessera::cli
