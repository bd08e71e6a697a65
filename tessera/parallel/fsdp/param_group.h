// The parameters of a unit that are gathered, freed and reduced as one: all, or those that are spread over
// the same ranks.
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

// Parameters of a module and what this rank owns of them.
using GroupParameters = std::vector<std::pair<at::Tensor, ShardedParameter*>>;

// [Note: life of a unit]
// Sharded --start_unshard()--> Gathering --unshard()--> Gathered --reshard()--> Sharded. The root may be
// PartlyFreed in between: gathered but for what its backward does not read. Where one rank holds every
// parameter whole in its stored type, tiles are the parameters themselves, and the unit is always Gathered.
// In the backward every gradient that arrives is counted; when the last one is there, or at the end of the
// backward, the reduction of them all is started (gradient_reduce.h).
class ParamGroup {
 public:
  // `parameters` of the module and what this rank owns of them, which outlives the group. `axes`: of their
  // layouts, the sharded one last, over whose ranks `slots` are; `secondary`: over those of
  // ShardGroups::secondary. Makes the parameters hollow. `divisor`: of the summed gradients.
  ParamGroup(std::string name, std::vector<RankAxis> axes, const MixedPrecisionPolicy& policy, double divisor,
             const GroupParameters& parameters, std::shared_ptr<GatherSlots> slots,
             std::shared_ptr<GatherSlots> secondary);

  const std::string& name() const { return name_; }
  bool is_gathered() const { return state_ == State::Gathered; }
  std::vector<UnitParam>& params() { return params_; }
  GradientReduce& gradients() { return *gradients_; }
  // False when tiles are the parameters themselves, or all parameters are empty.
  bool needs_gather() const { return needs_gather_; }
  // Where one rank holds whole parameters in the type of the compute, on the device or beside it, their
  // gradients hold the micro-batches so far: summed over other axes' ranks once.
  bool reduces_once() const { return reduces_once_; }

  // From now on ops add gradients to the parameters directly.
  void accumulate_directly();

  // Of secondary shards where there are none: primary.
  void start_unshard(ShardKind kind = ShardKind::Primary);
  void unshard(ShardKind kind = ShardKind::Primary);
  void reshard();
  // Between unshard() and reshard() of a forward, where there is a secondary group: copies this rank's
  // secondary shards, from which unshard() makes the same values until they are dropped.
  void keep_secondary();
  void drop_secondary();
  // Frees those of the gathered parameters that are named, where they have memory of their own (not in a
  // slot); the others stay until reshard(). Returns a number for what is left, 0 where nothing was freed. For
  // a backward that reads only the others, is_freed_as(number) is as good as gathered.
  int64_t free_named(const std::function<bool(const at::Tensor& parameter)>& is_named);
  bool is_freed_as(int64_t number) const {
    return state_ == State::PartlyFreed && number == num_partly_freed_;
  }

  // Drops the gradients that have not reached the tiles.
  void zero_grad();

 private:
  enum class State { Sharded, Gathering, Gathered, PartlyFreed };

  std::string name_;
  const std::vector<RankAxis> axes_;
  std::vector<UnitParam> params_;
  bool needs_gather_ = false, reduces_once_ = false, has_secondary_ = false;
  State state_ = State::Sharded;
  int64_t num_partly_freed_ = 0;  // how often so far
  std::shared_ptr<GatherSlots> slots_, secondary_slots_;
  std::unique_ptr<Gather> gather_;  // unless Sharded
  std::unique_ptr<GradientReduce> gradients_;
};

}  // namespace tessera::parallel::detail
