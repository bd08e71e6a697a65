// The parameters of a unit that are gathered, freed and reduced as one: all of them, or those that are spread
// over the same ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/fsdp/gather.h"
#include "tessera/parallel/fsdp/gradient_reduce.h"
#include "tessera/parallel/fsdp/unit_param.h"

namespace tessera::parallel::detail {

// Parameters of a module, each with what this rank owns of it.
using GroupParameters = std::vector<std::pair<at::Tensor, ShardedParameter*>>;

// [Note: life of a unit]
// A group goes Sharded --start_unshard()--> Gathering --unshard()--> Gathered --reshard()--> Sharded. The
// root may be PartlyFreed in between: gathered except for what its backward does not read. If one rank holds
// every parameter whole in its stored type, tiles are the parameters themselves, and the group is always
// Gathered. In the backward every gradient that arrives is counted; when the last one is there, or at the end
// of the backward, the reduction of them all is started (gradient_reduce.h).
class ParamGroup {
 public:
  // Makes the parameters hollow. `parameters` point to what this rank owns of them, which must outlive the
  // group. `axes` are the axes of their layouts, the sharded one last. `groups` are the groups of ranks along
  // dp_replicate and the sharded axis. `slots` belong to the ranks of the sharded axis, `secondary` to those
  // of ShardGroups::secondary. The summed gradients are divided by `divisor`.
  ParamGroup(std::string name, std::vector<RankAxis> axes, const ShardGroups& groups,
             const MixedPrecisionPolicy& policy, double divisor, const GroupParameters& parameters,
             std::shared_ptr<GatherSlots> slots, std::shared_ptr<GatherSlots> secondary);

  const std::string& name() const { return name_; }
  std::vector<UnitParam>& params() { return params_; }
  GradientReduce& gradients() { return *gradients_; }
  // Returns false if tiles are the parameters themselves, or all parameters are empty.
  bool needs_gather() const { return needs_gather_; }
  // Returns true if gradients are to be reduced only once a step. That is so if one rank holds whole
  // parameters in the type of the compute, on the device or beside it: their gradients then sum the
  // micro-batches by themselves, and are summed over the ranks of other axes at the end.
  bool reduces_once() const { return reduces_once_; }

  // Lets ops add gradients to the parameters directly from now on (ops/direct_gradient.h).
  void accumulate_directly();

  // Starts to gather the parameters; unshard() also waits and makes them usable. ShardKind::Secondary falls
  // back to Primary if no secondary shards are kept. Both are collective and do nothing if it is done
  // already. reshard() frees the parameters and ends a gather that is in flight.
  void start_unshard(ShardKind kind = ShardKind::Primary);
  void unshard(ShardKind kind = ShardKind::Primary);
  void reshard();
  // Copies this rank's secondary shards, if there is a secondary group; unshard() gathers the same values
  // from them until drop_secondary(). Call it between unshard() and reshard() of a forward.
  void keep_secondary();
  void drop_secondary();
  // Frees those gathered parameters that `is_named` names, if parameters have memory of their own (not in a
  // slot); the others stay until reshard(). Returns a number for this state, 0 if nothing was freed. For a
  // backward that reads only the others, is_freed_as(number) is as good as gathered.
  int64_t free_named(const std::function<bool(const at::Tensor& parameter)>& is_named);
  bool is_freed_as(int64_t number) const {
    return state_ == State::PartlyFreed && number == num_partly_freed_;
  }

  // Drops the gradients that have not reached the tiles.
  void zero_grad();
  // Gives the module's trained parameters hollow gradients, or none again, while the true ones are with the
  // tiles: an optimizer of LibTorch over the module's parameters gets an error from them, where it would pass
  // over parameters without a gradient.
  void set_hollow_gradients(bool is_hollow);

 private:
  enum class State { Sharded, Gathering, Gathered, PartlyFreed };

  std::string name_;
  const std::vector<RankAxis> axes_;
  std::vector<UnitParam> params_;
  bool needs_gather_ = false, reduces_once_ = false, has_secondary_ = false;
  State state_ = State::Sharded;
  int64_t num_partly_freed_ = 0;  // number of free_named() calls so far that freed something
  std::shared_ptr<GatherSlots> slots_, secondary_slots_;
  std::unique_ptr<Gather> gather_;  // null in the state Sharded
  std::unique_ptr<GradientReduce> gradients_;
};

}  // namespace tessera::parallel::detail
