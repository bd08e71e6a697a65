// The memory tables of other tools, to the digit, so that their users can compare.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::measure {

// Holds what DeepSpeed's estimators take. A layer is a module with parameters of its own.
struct ModelCounts {
  int64_t parameters = 0;     // each counted once, also where modules share it
  int64_t largest_layer = 0;  // parameters of the largest layer
};

// Forms of the formula for ZeRO-2 without offload: that of the documented tables, 4 P + 16 P / N bytes on
// each GPU, and that of later code, 2 P + 18 P / N.
enum class Zero2Formula { Documented, Later };

// Return the tables that estimate_zero2_model_states_mem_needs_all_live() and its kin for ZeRO-3 print
// (deepspeed/runtime/zero, stage_1_and_2.py and stage3.py), for parameters, gradients and Adam's states in
// mixed precision. Activations are not in them.
std::string deepspeed_zero2_table(const ModelCounts& model, int64_t gpus_per_node, int64_t nodes,
                                  Zero2Formula formula);
std::string deepspeed_zero3_table(const ModelCounts& model, int64_t gpus_per_node, int64_t nodes);

// Returns the table that `accelerate estimate-memory` prints (accelerate/commands/estimate.py): bytes of the
// model in each type, and four times those of float32 for training with Adam. `largest_block_bytes` and
// `model_bytes` are of the model in float32, its buffers included.
std::string accelerate_table(const std::string& name, int64_t largest_block_bytes, int64_t model_bytes);

}  // namespace tessera::measure
