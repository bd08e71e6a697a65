// Activations on their way from a forward to its backward, which may lie elsewhere meanwhile.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/carried_scope.h"

namespace tessera::ops {

// An activation that a store has taken; it goes with its last holder.
class StoredActivation {
 public:
  virtual ~StoredActivation() = default;
  // The values, for what the current stream runs next, without the graph.
  virtual at::Tensor get() = 0;
};

// Takes activations away from where they are computed.
class ActivationStore {
 public:
  virtual ~ActivationStore() = default;
  // Null: it stays where it is. Nobody changes x from now on.
  virtual std::shared_ptr<StoredActivation> put(const at::Tensor& x) = 0;
};

// While one lives, what ops save for their backward goes to this store.
using ActivationStoreScope = CarriedScope<ActivationStore*>;

// An activation as an op keeps it: a tensor, or what the store in force made of it.
class SavedActivation {
 public:
  SavedActivation() = default;
  explicit SavedActivation(const at::Tensor& x);
  // Without the graph; undefined where x was.
  at::Tensor get() const;

 private:
  at::Tensor here_;
  std::shared_ptr<StoredActivation> stored_;
};

// ctx.save_for_backward() of activations, and behind them of what stays, such as parameters.
void save_activations(torch::autograd::AutogradContext& ctx, const std::vector<at::Tensor>& activations,
                      const std::vector<at::Tensor>& others = {});
// All of them, in the same order. By one backward alone, in which the store's part becomes free.
std::vector<at::Tensor> take_activations(torch::autograd::AutogradContext& ctx);

}  // namespace tessera::ops
