// Keeps activations in the host's memory between their forward and their backward.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/core/Device.h>
#include <torch/nn/module.h>

namespace tessera::parallel {

// Activations of fewer bytes stay on the device.
inline constexpr int64_t kLeastOffloadedBytes = int64_t{1} << 20;

// Offloads what the blocks, run one after the other through nn::call(), save for their backward
// (ops/saved_activation.h). It is copied to pinned memory of the host when the block's forward has been
// submitted, and comes back when the backward of the block behind it begins. Copies run on streams of their
// own, and the host waits for none.
//
// Two blocks' activations are on the device at a time: those of the block that is computed and those of the
// block whose copies are under way. The activations of the last block stay. Apply it after
// checkpoint_activations(), so that the kept inputs are offloaded, and before fully_shard(). Does nothing on
// a device without streams.
void offload_activations(const std::vector<std::shared_ptr<torch::nn::Module>>& blocks, c10::Device device,
                         int64_t least_bytes = kLeastOffloadedBytes);

}  // namespace tessera::parallel
