// The ranks that make text together, and their places in the mesh.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/comm/bootstrap.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::generation {

// How ranks share a model.
struct InferenceSizes {
  int64_t tensor_parallel = 0;  // 0: the ranks that the pipeline leaves
  int64_t pipeline_parallel = 1, context_parallel = 1;
  // More ranks than the sizes need hold further copies of the model, each of which answers a part of the
  // prompts. Only those set this who have many prompts.
  bool has_many_prompts = false;
};

// Returns how `num_ranks` ranks share a model, or several copies of it (dp_replicate). Throws
// E-CONFIG-PARALLELISM for sizes that do not multiply to `num_ranks`, and for an axis that is of no use in
// making text.
ParallelDims inference_dims(const InferenceSizes& sizes, int64_t num_ranks);

// One of the ranks, or the process alone. The constructor is collective.
class InferenceRank {
 public:
  // `start_timeout_s` is that of comm::Bootstrap. Calls `tell_started` when the ranks have met.
  InferenceRank(const InferenceSizes& sizes, at::Device device, double start_timeout_s = 0.0,
                const std::function<void()>& tell_started = nullptr);

  const parallel::DeviceMesh& mesh() const { return mesh_; }
  comm::Communicator& world() const { return *bootstrap_.world(); }
  // Returns whether this is the rank that reads the prompts and shows the answers.
  bool is_first() const { return world().rank() == 0; }
  bool is_alone() const { return world().size() == 1; }

 private:
  const comm::Bootstrap bootstrap_;
  const parallel::DeviceMesh mesh_;
};

}  // namespace tessera::generation
