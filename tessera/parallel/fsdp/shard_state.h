// The state that the hooks of one sharded model share, and the order in which units are gathered and reduced.
#pragma once

#include <memory>
#include <vector>

#include "tessera/nn/call_hook.h"
#include "tessera/parallel/fsdp/param_group.h"

namespace tessera::parallel::detail {

// The moments at which a unit may be freed: after its forward (whose output has a graph or not), after its
// backward, and at the end of the whole backward.
enum class Moment { Forward, ForwardWithoutGraph, Backward, EndOfBackward };

// [Note: order of gathers and reductions]
// All ranks run the same units in the same order, so collectives are submitted in the same order everywhere
// without any agreement.
//  - Forward of unit i: finish its gather, start that of unit i + 1, run the unit, free it
//    (reshard_after_forward).
//  - Backward of unit i: when the gradient of its output arrives, finish its gather and start that of the
//    unit before; when its last gradient has been accumulated, finish the reduction that was started last,
//    then start its own, so one is in flight at a time; when the gradient of its input is there, free its
//    parameters.
//  - End of the backward (finish_backward(), called by autograd's engine): start the reductions of units that
//    did not get all gradients, finish all reductions, and free what is still gathered.
//
// The root is unit 0. It encloses the others, so its backward begins first and ends last.
struct ShardState {
  ShardGroups groups;
  ShardOptions options;
  std::vector<ShardedParameter> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  // Indices of the parameters whose tiles have no values, or not all of them.
  std::vector<size_t> unfilled;
  bool has_gradient_hooks = false;
  std::vector<std::unique_ptr<ParamGroup>> param_groups;
  // Indices in param_groups, by unit: one group, and one more for parameters that are spread over other ranks
  // (experts). The root comes first, then the units in the order of their use.
  std::vector<std::vector<size_t>> groups_of_unit;
  bool is_last_micro_batch = true;
  bool is_last_of_units = false;  // the next backward is the last one for the units that it reaches
  bool is_in_backward = false;
  bool is_kept_unsharded = false;
  bool is_interrupted = false;         // a forward or backward threw: recover() is due
  bool has_partial_gradients = false;  // a backward threw: the step's gradients are not whole
  bool is_plain = false;               // one process in the stored type: nothing to gather or reduce
  size_t last_reducing = 0;            // index of the group whose reduction was started last
  GradientListener listener;           // empty unless the gradients of each group are asked for

  // Returns whether unit `i` is to be freed at this moment.
  bool frees(size_t i, Moment moment) const;
  // Returns whether the group's gradients are reduced in the current backward.
  bool reduces_now(const ParamGroup& group) const {
    return is_last_micro_batch || (options.reduce_every_backward && !group.reduces_once());
  }
  // Gathers unit `i` and starts the gather of its neighbour: the next one (direction +1) or the one before
  // (-1). Nothing is gathered if unit `i` is still as the free_named() call that returned `freed` has left
  // it.
  void unshard_with_prefetch(size_t i, int direction, int64_t freed = 0);
  // Frees the root's parameters that its forward has declared unread by its backward. Returns what
  // ParamGroup::free_named() returns.
  int64_t free_forward_only();
  void free_where_due(size_t i, Moment moment);
  // Returns whether any group of the unit needs a gather.
  bool needs_gather(size_t unit) const;
  // Gives a tile without elements a gradient after a step, so that optimizers count the step for it too.
  void complete_empty_tile(ShardedParameter& owned) const;
  void complete_empty_tiles();
  // Finishes the reduction that was started last, then starts that of group `i`, so one is in flight at a
  // time. `is_last`: no gradients of the group come after these in this step.
  void start_reduce(size_t i, bool is_last);
  // Finishes the reduction of group `i`, if one is started, and tells the listener of gradients that are
  // complete for the step.
  void finish_reduce(size_t i);
  // At its first call in a backward, has autograd's engine call finish_backward() at the end of the backward.
  // A backward that throws never gets there, and is then marked as interrupted.
  void enter_backward(const std::shared_ptr<ShardState>& self);
  void finish_backward();
  // Ends what is in flight and frees what is gathered, if a forward or backward threw. On several ranks all
  // must have thrown at the same place.
  void recover();
  // Does what recover() does, without asking whether a step was interrupted.
  void clear_units();
  // check_tiles() throws if a tile has no values yet; check_has_values() also if a buffer has none.
  void check_tiles() const;
  void check_has_values() const;
  // Throws if gradients would be added to those of a backward that threw.
  void check_gradients() const;
  // Throws if requires_grad of a parameter was changed after fully_shard().
  void check_requires_grad() const;
  // Begins a step: drops all gradients, and what is in flight.
  void zero_grad();
};

// Notes that every tile has its final storage and its values. At the first call, lets ops add gradients to
// the parameters directly, and puts hooks on the gradient accumulators that count gradients and start a
// unit's reduction when all of them have arrived.
void note_filled(const std::shared_ptr<ShardState>& state);

// Makes the hook around the forward of unit `unit`.
std::shared_ptr<nn::CallHook> make_shard_hook(const std::shared_ptr<ShardState>& state, size_t unit);
// Returns whether `module` has such a hook.
bool has_shard_hook(const torch::nn::Module& module);

}  // namespace tessera::parallel::detail
