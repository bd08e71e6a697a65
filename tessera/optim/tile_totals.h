// Joins what the tiles of parameters measure, over the ranks that hold the other tiles.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/options.h"
#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::optim {

// Returns the groups of more than one rank along which the layout cuts a tensor: one after the other, a
// reduction over them joins all tiles of this rank's copy. `axes` has one entry for each axis of the layout.
std::vector<comm::Communicator*> cutting_groups(const parallel::Layout& layout,
                                                const std::vector<parallel::RankAxis>& axes);

// Vectors to be reduced together: those that share their groups and their operation share all-reduces.
class TileTotals {
 public:
  // Adds a float64 vector, which is overwritten by its reduction over `groups` in join(). All ranks of the
  // groups add vectors of the same sizes in the same order.
  void add(const at::Tensor& values, comm::ReduceOp op, const std::vector<comm::Communicator*>& groups);
  // Reduces all vectors. Collective over their groups, which run in the order in which vectors name them.
  void join();

 private:
  struct Share {
    std::vector<comm::Communicator*> groups;
    comm::ReduceOp op;
    std::vector<at::Tensor> values;
  };
  std::vector<Share> shares_;
};

}  // namespace tessera::optim
