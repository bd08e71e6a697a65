// One way to run a training, and the job that it is to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/schedule_kind.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/device.h"

namespace tessera::planner {

// The part that the user asks for; the plan must not change it.
struct Job {
  int64_t sequence = 0;  // tokens of a document, full
  int64_t sequences_per_step = 0;
  bool async_tensor = false;
  // Bytes of the optimizer's states for a trained parameter: those that are cut as the parameter is, and
  // those that every rank which holds a part of it has whole.
  double state_bytes = 8.0, whole_state_bytes = 0.0;
  double update_s = 0.0;  // of a rank, to update a parameter, measured; 0: what memory takes
  double steps = 0.0;     // of the run; 0 = not known
};

// Activations that the backward recomputes. Selective is PyTorch's: every second product, and all that is
// element-wise.
enum class Recompute { None, Mlp, Selective, Block };
enum class Base { Dense, FourBit };
enum class Offload { None, HostStates, DriveStates };

struct Choice {
  int64_t dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, pp = 1, ep = 1;
  int64_t zero = 3, hpz = 1;
  PipelineKind schedule = PipelineKind::OneFOneB;
  int64_t stages_per_rank = 1;
  int64_t micro_batch = 1;   // sequences
  int64_t accumulation = 1;  // micro-batches of a step
  Recompute recompute = Recompute::None;
  double recomputed_blocks = 1.0;  // share of the blocks, with Recompute::Block
  Precision precision = Precision::BFloat16;
  bool pure_bf16 = false;
  int64_t adapter_rank = 0;  // of LoRA on all linear layers; 0 = all weights are trained
  Base base = Base::Dense;
  // Parameters travel in codes of 8 bits and gradients in codes of 4, as ZeRO++ sends them.
  bool codes_weights = false, codes_gradients = false;
  bool updates_in_backward = false;  // each block's gradients are gone once it is updated
  Offload offload = Offload::None;

  int64_t ranks() const { return dp_replicate * dp_shard * cp * tp * pp; }
  int64_t readers() const { return dp_replicate * dp_shard; }
  // Ranks over which states are cut.
  int64_t shards() const { return zero == 0 ? 1 : dp_shard * cp; }
  // Returns whether the products are computed in a narrower type than that of the weights that are updated.
  bool is_narrow() const { return precision != Precision::Float32 && !pure_bf16; }
  // Returns whether each micro-batch's gradients are cut among the shards, rather than their sum at the end
  // of the step. Where products are narrow, the trainer always does so.
  bool cuts_each_gradient(const Software& software) const {
    if (pp > 1 && software.sums_whole_gradients) return false;
    return is_narrow() || (pp == 1 && zero >= 2);
  }
  bool operator==(const Choice&) const = default;

  // Returns the lines of a recipe that ask for it: "tensor_parallel_size: 2".
  std::vector<std::string> recipe_lines(const Job& job) const;
};

}  // namespace tessera::planner
