// Memory of the machine in which gathered parameters lie.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"

namespace tessera::parallel::detail {

// Where the ranks of a shard group share a machine, one copy of a unit's gathered parameters serves them all:
// each rank writes its own rows, and nothing is sent or copied out. The units of a model use slots in turn.
// All ranks must take and give back in the same order; then they hold the same slots at any time. Memory
// grows to the slots that are in use at once, and two unused ones of each size are kept.
class GatherSlots {
 public:
  explicit GatherSlots(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  comm::Communicator& group() { return *group_; }
  // A slot as bytes, with what its last user left there: write to it in Communicator::write_shared() only.
  // Undefined where the ranks share no memory. Collective, and waits, where no slot of the size is free.
  at::Tensor take(int64_t num_bytes);
  // For a slot that this rank has finished reading.
  void give_back(at::Tensor slot);

 private:
  static constexpr size_t kKept = 2;

  std::shared_ptr<comm::Communicator> group_;
  std::map<int64_t, std::vector<at::Tensor>> free_;  // by size
  bool is_refused_ = false;
};

}  // namespace tessera::parallel::detail
