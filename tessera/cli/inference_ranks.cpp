#include "tessera/cli/inference_ranks.h"

#include <algorithm>
#include <string>

#include <CLI/CLI.hpp>

#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/comm/rank_cores.h"
#include "tessera/core/error.h"

namespace tessera::cli {
namespace {

std::shared_ptr<comm::Communicator> settled(const std::shared_ptr<comm::Communicator>& world) {
  if (world->size() > 1) comm::share_cores(*world);
  tell_started();
  return world;
}

}  // namespace

void add_rank_options(CLI::App& verb, RankOptions& options) {
  verb.add_option(
          "--nproc", options.nproc,
          options.has_many_prompts
              ? "Ranks to start on this machine, which share the model; of a multiple of the sizes below, "
                "each so many hold a copy and answer their part of the prompts"
              : "Ranks to start on this machine, which share the model")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--tensor-parallel-size", options.tensor_parallel,
                  "Ranks that compute each layer together; default: all that --pipeline-parallel-size leaves")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--pipeline-parallel-size", options.pipeline_parallel,
                  "Ranks that hold a part of the layers each and take turns")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--context-parallel-size", options.context_parallel,
                  "1: a step makes one token of a sequence")
      ->check(CLI::Range(1, 4096));
}

ParallelDims inference_dims(const RankOptions& options, int64_t num_ranks) {
  if (options.context_parallel > 1) {
    throw Error(
        ErrorKind::Config, "PARALLELISM",
        "--context-parallel-size: ranks cannot share the tokens of a step, which makes one of each sequence")
        .got(std::to_string(options.context_parallel))
        .need("1")
        .hint("--tensor-parallel-size shares the cache by heads, --pipeline-parallel-size by layers");
  }
  const int64_t pp = options.pipeline_parallel;
  const int64_t tp =
      options.tensor_parallel > 0 ? options.tensor_parallel : std::max<int64_t>(1, num_ranks / pp);
  const int64_t copies = num_ranks / (tp * pp);
  const bool leaves_some = copies * tp * pp != num_ranks;
  if (leaves_some || (copies > 1 && !options.has_many_prompts)) {
    const std::string ranks = std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks");
    throw Error(ErrorKind::Config, "PARALLELISM",
                leaves_some ? "the sizes do not multiply to the number of ranks"
                            : "one conversation cannot use copies of the model: each question waits for the "
                              "answer before it")
        .got((options.tensor_parallel > 0 ? "--tensor-parallel-size " + std::to_string(tp) + " x " : "") +
             std::string("--pipeline-parallel-size ") + std::to_string(pp) + " and " + ranks)
        .hint("--nproc " + std::to_string(std::max<int64_t>(1, options.tensor_parallel) * pp));
  }
  ParallelDims dims;
  dims.dp_replicate = copies;
  dims.dp_shard = 1;
  dims.tp = tp;
  dims.pp = pp;
  return dims;
}

std::optional<int> start_ranks(const RankOptions& options, const CommandLine& line) {
  if (is_under_launcher(options.nproc)) return std::nullopt;
  const int64_t asked = std::max<int64_t>(1, options.tensor_parallel) * options.pipeline_parallel;
  const int64_t nproc = options.nproc > 0 ? options.nproc : asked;
  (void)inference_dims(options, nproc);
  return relaunch(nproc, line.arguments);
}

InferenceRank::InferenceRank(const RankOptions& options, at::Device device)
    : bootstrap_(device, own_start_timeout_s()),
      mesh_(settled(bootstrap_.world()), inference_dims(options, bootstrap_.world()->size())) {}

}  // namespace tessera::cli
