// The norm of a gradient that lies in tiles on many ranks.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"

namespace tessera::optim {

struct NamedGradient {
  std::string name;
  at::Tensor gradient;  // this rank's rows; may be undefined or empty
};

struct GradientNorm {
  double norm = 0.0;  // Euclidean, over all gradients and ranks; not finite if any element is not
  // Where an element is not finite: the first rank of the group that holds one, and the gradient's name; -1
  // and empty where finite elements overflow.
  int64_t bad_rank = -1;
  std::string bad_name;
};

// Tiles of `shard_group`'s ranks together make each gradient once. The same result on every rank.
// Collective.
GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients,
                                  comm::Communicator& shard_group);

// The factor that brings a gradient of this norm down to max_norm: min(1, max_norm / (norm + 1e-6)) as
// torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace tessera::optim
