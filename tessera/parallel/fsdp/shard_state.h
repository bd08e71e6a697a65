// What the hooks of one sharded model share, and the order in which units are gathered and reduced.
#pragma once

#include <memory>
#include <vector>

#include "tessera/nn/call_hook.h"
#include "tessera/parallel/fsdp/param_group.h"

namespace tessera::parallel::detail {

// When a unit may be freed.
enum class Moment { Forward, ForwardWithoutGraph, Backward, EndOfBackward };

struct ShardState {
  ShardGroups groups;
  ShardOptions options;
  std::vector<ShardedParameter> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  // Those whose tiles have no values, or not all of them.
  std::vector<size_t> unfilled;
  bool has_gradient_hooks = false;
  std::vector<std::unique_ptr<ParamGroup>> param_groups;
  // The numbers of each unit's: one, and one for what is spread over other ranks. The root first, then the
  // units in the order of their use.
  std::vector<std::vector<size_t>> groups_of_unit;
  bool is_last_micro_batch = true;
  bool is_last_of_units = false;  // of those that the backward reaches, as of all in the last micro-batch
  bool is_in_backward = false;
  bool is_kept_unsharded = false;
  bool is_interrupted = false;         // a forward or backward threw: recover() is due
  bool has_partial_gradients = false;  // a backward threw: those of the step are not whole
  bool is_plain = false;               // one process, in the stored type: nothing to gather or to reduce
  size_t last_reducing = 0;            // the group whose reduction was started last

  // Whether unit `i` is freed when its forward (whose output needs a gradient, or not) or its backward has
  // passed, or at the end of the whole backward.
  bool frees(size_t i, Moment moment) const;
  bool reduces_now(const ParamGroup& group) const {
    return is_last_micro_batch || (options.reduce_every_backward && !group.reduces_once());
  }
  // Gathers unit `i`, unless it stands as free_named() with this number left it, and starts the gather of its
  // neighbour: the next one (+1) or the one before (-1).
  void unshard_with_prefetch(size_t i, int direction, int64_t freed = 0);
  // Frees what the root's forward said that its backward does not read: ParamGroup::free_named().
  int64_t free_forward_only();
  void free_where_due(size_t i, Moment moment);
  // Whether any of a unit's parameters does.
  bool needs_gather(size_t unit) const;
  // After a step: optimizers count it for tiles without elements too.
  void complete_empty_tiles();
  // Starts the reduction of group `i` after finishing the one before, so that at most two are in flight.
  // `is_last`: none of the group comes after in this step.
  void start_reduce(size_t i, bool is_last);
  // First call of a backward: has the engine call finish_backward() at its end, or note that it never came.
  void enter_backward(const std::shared_ptr<ShardState>& self);
  void finish_backward();
  // After a forward or backward that threw: ends what is in flight and frees what is gathered. On several
  // ranks all must have thrown at the same place.
  void recover();
  void clear_units();
  // Throws where a tile has no values yet; where a tile or a buffer has none.
  void check_tiles() const;
  void check_has_values() const;
  // Throws where gradients would be added to those of a backward that threw.
  void check_gradients() const;
  // Throws where a parameter was frozen, or let train, after it was cut.
  void check_requires_grad() const;
  // Begins a step anew.
  void zero_grad();
};

// Every tile has its final storage and its values. From the first time on ops add gradients to the parameters
// directly; they are counted, and a unit's reduction starts when all of its have arrived.
void note_filled(const std::shared_ptr<ShardState>& state);

// The hook around the forward of unit `unit`.
std::shared_ptr<nn::CallHook> make_shard_hook(const std::shared_ptr<ShardState>& state, size_t unit);
// Whether `module` has such a hook.
bool has_shard_hook(const torch::nn::Module& module);

}  // namespace tessera::parallel::detail
