// Gradients of weights that are computed after the backward that asks for them.
#pragma once

#include <functional>
#include <vector>

#include "tessera/device/carried_scope.h"

namespace tessera::ops {

// Products that a backward has put off: nothing else in a backward waits for the gradient of a weight, so a
// pipeline runs them where its ranks would be idle. Holds their operands until they have run. Work that needs
// these gradients (the reduction of a unit's gradients) is put off behind them.
class DeferredGradients {
 public:
  DeferredGradients() = default;
  DeferredGradients(DeferredGradients&&) = default;
  DeferredGradients& operator=(DeferredGradients&&) = default;

  void add(std::function<void()> product) { products_.push_back(std::move(product)); }
  // Runs what was put off, in the order of the backward: each product adds its gradient to its parameter.
  void run();

 private:
  std::vector<std::function<void()>> products_;
};

// While one lives, the backwards of ops::linear and ops::grouped_linear hand the weight gradients that they
// would add to their parameters directly (direct_gradient.h) to the scope's value, which must outlive the
// scope.
using DeferGradientsScope = CarriedScope<DeferredGradients*>;

}  // namespace tessera::ops
