// The ranks of a verb that makes text: their options, their start, and their places in the mesh.
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
  // More ranks than the sizes need hold further copies of the model, each of which answers a part of the
  // prompts. Only verbs with many prompts set this.
  bool has_many_prompts = false;
};

void add_rank_options(CLI::App& verb, RankOptions& options);

// Returns how `num_ranks` ranks share a model, or several copies of it (dp_replicate). Throws
// E-CONFIG-PARALLELISM for sizes that do not multiply to `num_ranks`, and for an axis that is of no use in
// making text.
ParallelDims inference_dims(const RankOptions& options, int64_t num_ranks);

// If this process is to start the ranks, does so and returns the exit code of their job; else returns
// nullopt. Throws the errors of inference_dims() and launch().
std::optional<int> start_ranks(const RankOptions& options, const CommandLine& line);

// One of the ranks, or the process alone. The constructor is collective.
class InferenceRank {
 public:
  InferenceRank(const RankOptions& options, at::Device device);

  const parallel::DeviceMesh& mesh() const { return mesh_; }
  comm::Communicator& world() const { return *bootstrap_.world(); }
  // Returns whether this is the rank that reads the prompts and shows the answers.
  bool is_first() const { return world().rank() == 0; }
  bool is_alone() const { return world().size() == 1; }

 private:
  const comm::Bootstrap bootstrap_;
  const parallel::DeviceMesh mesh_;
};

}  // namespace tessera::cli
