// The ranks of a verb that makes text: how they are asked for, started, and told apart.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::cli {

struct RankOptions {
  int64_t nproc = 0;            // 0: as many as the sizes say
  int64_t tensor_parallel = 0;  // 0: the ranks that the pipeline leaves
  int64_t pipeline_parallel = 1, context_parallel = 1;
  // What more ranks than the sizes say are for: each so many hold a copy of the model and answer their part.
  bool has_many_prompts = false;
};

void add_rank_options(CLI::App& verb, RankOptions& options);

// How so many ranks share a model, or each so many of them a copy of it (dp_replicate). Throws
// E-CONFIG-PARALLELISM for sizes that do not multiply to them, and for what is no use in making text.
ParallelDims inference_dims(const RankOptions& options, int64_t num_ranks);

// Where this process is to start the ranks: the exit code of their job. Throws what inference_dims() and
// launch() throw.
std::optional<int> start_ranks(const RankOptions& options, const CommandLine& line);

// One of the ranks, or the process alone. Collective.
class InferenceRank {
 public:
  InferenceRank(const RankOptions& options, at::Device device);

  const parallel::DeviceMesh& mesh() const { return mesh_; }
  comm::Communicator& world() const { return *bootstrap_.world(); }
  // The one that reads the prompts and shows the answers.
  bool is_first() const { return world().rank() == 0; }
  bool is_alone() const { return world().size() == 1; }

 private:
  const comm::Bootstrap bootstrap_;
  const parallel::DeviceMesh mesh_;
};

}  // namespace tessera::cli
