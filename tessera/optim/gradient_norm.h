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
  at::Tensor gradient;  // tile of this rank; may be undefined or empty
  // The groups along which the gradient is cut, or is held by some of the ranks only: the tiles of their
  // ranks together hold each element once.
  std::vector<comm::Communicator*> cut_over;
  // The sum of squares of a gradient that is gone already, a float64 scalar on its device; else undefined.
  at::Tensor squares = {};
};

struct GradientNorm {
  double norm = 0.0;  // Euclidean, over all gradients and ranks; not finite if any element is not
  // Name of a gradient that holds a value that is not finite; empty where all elements are finite, also if
  // their sum of squares overflows.
  std::string bad_name;
  bool is_bad_here = false;  // a tile of this rank holds such a value
};

// A gradient norm that is still being computed on the device of the gradients, so that a step can read it
// together with its loss.
class PendingNorm {
 public:
  // Starts the sums of squares and their all-reduces, for which the host does not wait. All ranks list the
  // same gradients with the same `cut_over`, in the same order; the gradients lie on `device`. Collective
  // over the groups of `cut_over`, which outlive this object.
  PendingNorm(std::vector<NamedGradient> gradients, at::Device device);
  // Takes the gradients of all trained tiles of `model`. Each element counts once, however many ranks hold a
  // copy of it.
  explicit PendingNorm(const parallel::ShardedModel& model);
  // Takes NamedGradient::squares of each trained tile, undefined for one without a gradient.
  PendingNorm(const parallel::ShardedModel& model, const std::vector<at::Tensor>& squares);

  // Sum of the squares over all gradients and ranks: [1], float64, on the device, the same on all ranks.
  const at::Tensor& sum_of_squares() const { return total_; }
  // Returns the norm for `sum_of_squares`, the value of sum_of_squares() as the host has read it. All ranks
  // get the same result except for is_bad_here. Collective, as the constructor is, where the value is not
  // finite.
  GradientNorm finish(double sum_of_squares) const;

 private:
  std::vector<NamedGradient> gradients_;
  std::vector<size_t> counted_;              // indices of the gradients that have elements on this rank
  std::vector<at::Tensor> squares_;          // sum of squares of each of these, a float64 scalar
  std::vector<comm::Communicator*> groups_;  // all groups of `cut_over`, each once
  at::Tensor total_;
};

// Computes the norm at once: the host waits for the device. Collective as PendingNorm.
GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients, at::Device device);
GradientNorm global_gradient_norm(const parallel::ShardedModel& model);

// Returns the factor that brings a gradient of this norm down to max_norm: min(1, max_norm / (norm + 1e-6))
// as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);
// Returns the same factor for a norm in float64 that lies on any device; the host does not wait for it.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

}  // namespace tessera::optim
