#include "tessera/generation/inference_ranks.h"

#include <algorithm>
#include <string>

#include "tessera/comm/rank_cores.h"
#include "tessera/core/error.h"

namespace tessera::generation {
namespace {

std::shared_ptr<comm::Communicator> settled(const std::shared_ptr<comm::Communicator>& world,
                                            const std::function<void()>& tell_started) {
  if (world->size() > 1) comm::share_cores(*world);
  if (tell_started) tell_started();
  return world;
}

}  // namespace

ParallelDims inference_dims(const InferenceSizes& sizes, int64_t num_ranks) {
  if (sizes.context_parallel > 1) {
    throw Error(
        ErrorKind::Config, "PARALLELISM",
        "--context-parallel-size: ranks cannot divide the tokens of a step, which generates one per sequence")
        .got(std::to_string(sizes.context_parallel))
        .need("1")
        .hint("--tensor-parallel-size divides the cache by heads, --pipeline-parallel-size by layers");
  }
  const int64_t pp = sizes.pipeline_parallel;
  const int64_t tp = sizes.tensor_parallel > 0 ? sizes.tensor_parallel : std::max<int64_t>(1, num_ranks / pp);
  const int64_t copies = num_ranks / (tp * pp);
  const bool leaves_some = copies * tp * pp != num_ranks;
  if (leaves_some || (copies > 1 && !sizes.has_many_prompts)) {
    const std::string ranks = std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks");
    throw Error(ErrorKind::Config, "PARALLELISM",
                leaves_some ? "the product of the sizes is not the number of ranks"
                            : "one conversation cannot use several copies of the model, because each "
                              "question waits for the previous answer")
        .got((sizes.tensor_parallel > 0 ? "--tensor-parallel-size " + std::to_string(tp) + " x " : "") +
             std::string("--pipeline-parallel-size ") + std::to_string(pp) + " and " + ranks)
        .hint("--nproc " + std::to_string(std::max<int64_t>(1, sizes.tensor_parallel) * pp));
  }
  ParallelDims dims;
  dims.dp_replicate = copies;
  dims.dp_shard = 1;
  dims.tp = tp;
  dims.pp = pp;
  return dims;
}

InferenceRank::InferenceRank(const InferenceSizes& sizes, at::Device device, double start_timeout_s,
                             const std::function<void()>& tell_started)
    : bootstrap_(device, start_timeout_s),
      mesh_(settled(bootstrap_.world(), tell_started), inference_dims(sizes, bootstrap_.world()->size())) {}

}  // namespace tessera::generation
