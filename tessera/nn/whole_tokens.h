// Passes whose tokens every rank has, although training spreads tokens over the ranks.
#pragma once

#include "tessera/device/carried_scope.h"

namespace tessera::nn {

// While one lives, layers that are cut over ranks take and give all tokens on every rank, also where they
// otherwise spread them (parallel::TensorParallelOptions::sequence_parallel): a pass with a cache may have
// fewer tokens than there are ranks.
class WholeTokensScope {
 public:
  static bool is_in_force() { return CarriedScope<Mark>::current() != nullptr; }

 private:
  struct Mark {};
  CarriedScope<Mark> scope_{Mark()};
};

}  // namespace tessera::nn
