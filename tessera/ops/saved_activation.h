// Activations that ops save in a forward for its backward, and that may lie elsewhere meanwhile.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/device/carried_scope.h"

namespace tessera::ops {

// An activation that a store has taken; it is freed with its last holder.
class StoredActivation {
 public:
  virtual ~StoredActivation() = default;
  // Returns the values without the graph; work that the current stream runs from now on may read them.
  virtual at::Tensor get() = 0;
};

// Takes activations away from where they are computed.
class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  // Takes x, or returns null: x then stays where it is. Nobody changes x from now on.
  virtual std::shared_ptr<StoredActivation> put(const at::Tensor& x) = 0;
};

// While one lives, the activations that ops save for their backward go to this store.
using ActivationStoreScope = CarriedScope<ActivationStore*>;

// An activation as an op keeps it: a tensor, or what the store in force made of it.
class SavedActivation {
 public:
  SavedActivation() = default;
  explicit SavedActivation(const at::Tensor& x);
  // Returns the values without the graph; undefined if x was.
  at::Tensor get() const;

 private:
  at::Tensor here_;
  std::shared_ptr<StoredActivation> stored_;
};

// Calls ctx.save_for_backward() with the activations, or what the store in force leaves of them, and behind
// them the `others`, which stay (parameters, say).
void save_activations(torch::autograd::AutogradContext& ctx, const std::vector<at::Tensor>& activations,
                      const std::vector<at::Tensor>& others = {});
// Returns all that save_activations() saved, in the same order. Called by one backward alone; what the store
// holds becomes free with it.
std::vector<at::Tensor> take_activations(torch::autograd::AutogradContext& ctx);

}  // namespace tessera::ops
