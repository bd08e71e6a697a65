// Fully sharded data parallelism for any torch::nn::Module: one engine for DDP, ZeRO-1, ZeRO-2, ZeRO-3 and
// their products with replication.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/layout.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

struct MixedPrecisionPolicy {
  // Type of the gathered parameters, in which the forward and backward run; unset = as stored.
  std::optional<at::ScalarType> param_dtype;
  // Type in which gradients are reduced; unset = the type that the backward made.
  std::optional<at::ScalarType> reduce_dtype;
  // Where one process alone trains in param_dtype, keep the gradients of the units in it too rather than
  // widened: half of their memory. For steps of one backward that uses a unit's parameter once: the product
  // that makes the gradient then rounds it once, as torch.autocast does. A gradient that is added to one of
  // an earlier backward is widened first. The root's are summed in reduce_dtype as ever.
  bool keeps_narrow_gradients = false;
  // With param_dtype set: cast floating inputs of the root and of each unit to it too. See nn::call() for
  // which inputs; what a module reads from elsewhere is not cast.
  bool cast_forward_inputs = true;
};

struct ShardOptions {
  // Free the gathered parameters of a unit after its forward and gather them again for its backward
  // (ZeRO-3). Otherwise they stay until the end of the step's last backward. Of the root, which is used from
  // the start of the forward to the end of the backward, what a nn::ForwardOnlyScope names is freed, except
  // where ranks share one copy of it.
  bool reshard_after_forward = true;
  // Reduce gradients to shards in every backward (ZeRO-2 and 3). Otherwise they are kept whole until the
  // last micro-batch (ZeRO-1, DDP), which sends less and needs more memory. Always on where param_dtype is
  // set, so that sums over micro-batches are kept in the tile's type.
  bool reduce_every_backward = true;
  // Divide the summed gradients by the number of data-parallel ranks. Off where the loss is already divided
  // by a global count.
  bool average_gradients = true;
  // Copy the values of the first rank to all, where parameters already have values.
  bool broadcast_initial_values = true;
  // On a device that has streams: tiles lie in pinned memory of the host, and come to the device when their
  // unit is gathered, beside the compute of the unit before. They are read and written in the order of the
  // device's current stream: who reads or writes them on the host calls ShardedModel::wait_for_tiles().
  // Gradients stay on the device. What is gathered stays there as long as ever.
  bool offload_parameters = false;
  MixedPrecisionPolicy mixed_precision;
  // How the parameters are cut already. fully_shard() adds its axes to theirs.
  ParameterLayouts layouts;
};

// One parameter as this rank owns it.
struct ShardedParameter {
  std::string name;                  // as in named_parameters(); of a shared parameter, the first name
  std::vector<std::string> aliases;  // its other names
  Layout layout;                     // of the whole parameter: its last axis is the sharded one
  std::vector<RankAxis> axes;        // the layout's
  std::vector<int64_t> coordinates;  // of this rank, on the layout's axes
  Box box;                           // what it holds: layout.local_box(coordinates)
  // The values in the box, in the type of the compute if the parameter is frozen: a leaf that holds no other
  // rank's values (the module's own parameter, where this rank gathers nothing for it). After the step's last
  // backward tile.grad() holds their gradient, if the parameter requires one: on the device, also that of a
  // tile which lies on the host (ShardOptions::offload_parameters). Undefined until
  // ShardedModel::materialize() where the model was built on the meta device.
  at::Tensor tile;
  bool requires_grad = true;
};

namespace detail {
class ParamGroup;
struct ShardState;
}  // namespace detail

// What fully_shard() returns. Owned by the caller; must outlive the use of the module. Not thread-safe.
//
// A forward or backward may throw, on all ranks at the same place: the next forward finds everything in
// order. After a forward that threw, the gradients of the step so far still count; after a backward that
// threw they are not whole, and training goes on with zero_grad() only: anything else throws Error(Config).
class ShardedModel {
 public:
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // All parameters, frozen ones too, in the order of named_parameters().
  const std::vector<ShardedParameter>& parameters() const;
  // What an optimizer updates: the tiles of the parameters that require a gradient, in the same order. Some
  // may have no rows on this rank. Throws Error(Config) before all tiles have values: an optimizer made then
  // would train nothing.
  std::vector<at::Tensor> trained_tiles() const;
  // The module's buffers by name: whole on every rank, and each rank's own.
  const std::vector<std::pair<std::string, at::Tensor>>& buffers() const;
  const ShardGroups& groups() const;
  // Where the model computes, and the tiles lie unless they are offloaded: the device of the groups.
  at::Device device() const;

  // Allocates, on device() or beside it, the tiles of a model that was built on the meta device and has
  // `fill` write each tile that has no values; nothing where all have. Where `fill` throws, none of them
  // counts as filled: call again. Buffers are left as they are. Memory is never more than this rank's tiles.
  // Not collective.
  void materialize(const std::function<void(const ShardedParameter& parameter)>& fill);
  // Allocates likewise and has `write` write every tile, also those that have values. Until it has returned
  // the module counts as one without values. Not collective.
  void overwrite(const std::function<void()>& write);
  // Throws Error(Config) where a parameter or a buffer has no values yet, as every use of the module does.
  void check_has_values() const;
  // Tiles that lie on the host beside a device have the values of all updates so far, and nothing reads them:
  // the host waits. Nothing where tiles lie on the device.
  void wait_for_tiles() const;

  // Whether the next backward is the last one of the step: after it, tile.grad() is complete. True at first.
  void set_is_last_micro_batch(bool is_last);
  // Whether the next backward is the last one of the step for each unit that it reaches, while others reach
  // other units (a stage of a pipeline). The gradients of such a unit, where all of its parameters get one,
  // are reduced at once, beside what comes after: behind the weight gradients that the backward leaves over
  // (ops::DeferGradientsScope), if any. False at first. The same on all ranks.
  void set_is_last_of_units(bool is_last);
  // Makes tile.grad() complete as the step's last backward does: for steps in which none of the backwards was
  // said to be the last, since gradients come after it or in an order of their own (a pipeline). Nothing
  // where one was. Collective.
  void reduce_gradients();
  // Begins a step: drops the gradients of the one before, whole or not.
  void zero_grad();

  // The whole parameter, where its tiles lie, on every rank along the axes that cut it. Collective over
  // these.
  at::Tensor full_tensor(const ShardedParameter& parameter) const;

  // Gathers all units and keeps them until reshard(): for generation and other repeated forwards.
  // Collective.
  void unshard();
  void reshard();

 private:
  friend std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module&, const ShardGroups&,
                                                   const std::vector<std::shared_ptr<torch::nn::Module>>&,
                                                   const ShardOptions&);
  ShardedModel();
  std::shared_ptr<detail::ShardState> state_;
};

// Cuts what options.layouts leaves of every parameter of `root` on dim 0 over groups.shard, or over the
// groups that the layouts give it. Each module of `units` is gathered, used and freed as one; what is in no
// unit belongs to the root, which stays gathered from the start of its forward to the end of its backward.
// `root` and `units` must be run through nn::call() or nn::call_hooked(); units in the order of their use.
// Afterwards the parameters of the module are hollow between uses, and any use of them throws Error(Config):
// read and update them through the returned object only. Exceptions are parameters that need no gathering
// (one rank holds them whole, in the type of the compute): they are their tiles. All ranks use the same
// parameters in the same backward. Gradients of all ranks are summed (and averaged, by option). The result of
// any grouping equals one process that saw all the data, to the rounding of MixedPrecisionPolicy's types.
// Throws Error(Config) for a module that is sharded already, in whole or in part, for units that are not
// below the root or share a parameter, and for a parameter without a dim to cut or of a complex or quantised
// type. Collective.
std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module& root, const ShardGroups& groups,
                                          const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                                          const ShardOptions& options = {});

}  // namespace tessera::parallel
