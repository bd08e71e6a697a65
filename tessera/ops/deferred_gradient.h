// Gradients of weights that are computed after the backward that asks for them.
#pragma once

#include <functional>
#include <vector>

#include "tessera/core/carried_scope.h"

namespace tessera::ops {

// Products that a backward has left over: nothing else of it waits for the gradient of a weight. Holds their
// operands until they have run. What waits for these gradients (a reduction of those of a unit) comes behind
// them.
class DeferredGradients {
 public:
  DeferredGradients() = default;
  DeferredGradients(DeferredGradients&&) = default;
  DeferredGradients& operator=(DeferredGradients&&) = default;

  void add(std::function<void()> product) { products_.push_back(std::move(product)); }
  // Adds the gradients to their parameters, in the order of the backward.
  void run();

 private:
  std::vector<std::function<void()>> products_;
};

// While it lives, backwards leave the weight gradients of ops::linear that are added to their parameters
// directly (direct_gradient.h) to its value, which outlives it.
using DeferGradientsScope = CarriedScope<DeferredGradients*>;

}  // namespace tessera::ops
