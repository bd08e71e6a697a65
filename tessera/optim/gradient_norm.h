// The norm of a gradient that lies in tiles on many ranks.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::optim {

struct NamedGradient {
  std::string name;
  at::Tensor gradient;  // this rank's tile; may be undefined or empty
  // The axes that cut it: their ranks' tiles together make it once.
  std::vector<comm::Communicator*> cut_over;
};

struct GradientNorm {
  double norm = 0.0;  // Euclidean, over all gradients and ranks; not finite if any element is not
  // Where an element is not finite: a gradient that holds one; empty where finite elements overflow.
  std::string bad_name;
  bool is_bad_here = false;  // this rank's tiles hold one
};

// A norm on its way, on the device of the gradients, so that a step reads it together with its loss.
class PendingNorm {
 public:
  // The gradients and what cuts them are the same on all ranks, and lie on `device`, which is not waited for.
  // Collective over what cuts them. The communicators outlive this.
  PendingNorm(std::vector<NamedGradient> gradients, at::Device device);
  // Of all tiles that are trained, each counted once whatever cuts it or copies it.
  explicit PendingNorm(const parallel::ShardedModel& model);

  // [1], float64, on the device: the sum of the squares over all gradients and ranks.
  const at::Tensor& sum_of_squares() const { return total_; }
  // The norm, of the value that sum_of_squares() has. The same result on every rank but for is_bad_here.
  // Collective as the constructor where the value is not finite.
  GradientNorm finish(double sum_of_squares) const;

 private:
  std::vector<NamedGradient> gradients_;
  std::vector<size_t> counted_;              // the places of the gradients with elements here
  std::vector<at::Tensor> squares_;          // of these
  std::vector<comm::Communicator*> groups_;  // that any of them is cut over, each once
  at::Tensor total_;
};

// The norm at once: reads the device.
GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients, at::Device device);
GradientNorm global_gradient_norm(const parallel::ShardedModel& model);

// The factor that brings a gradient of this norm down to max_norm: min(1, max_norm / (norm + 1e-6)) as
// torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);
// The same of a norm in float64 on any device, which is not waited for.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

}  // namespace tessera::optim
