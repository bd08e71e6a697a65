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
  // Sends parameters in codes of 8 bits, and gradients in codes of 4 bits (ops/row_codes.h), where those are
  // smaller: parameters of floating types with two or more dims. The ranks compute with the decoded
  // parameters; the tiles and their updates keep their type. Applies to what is gathered over, and reduced
  // to, the ranks that hold tiles: a rank that holds a whole parameter computes with the parameter itself,
  // and secondary shards and sums along other axes are sent as they are.
  bool codes_parameters = false, codes_gradients = false;
  // Keeps the gradients of the units in param_dtype instead of widening them, which halves their memory, if
  // one process alone trains in param_dtype. It is meant for steps of one backward that uses each parameter
  // of a unit once: the product that makes the gradient then rounds it once, as torch.autocast does. A
  // gradient that is added to one of an earlier backward is widened first. The root's gradients are summed in
  // reduce_dtype in any case.
  bool keeps_narrow_gradients = false;
  // Casts floating inputs of the root and of each unit to param_dtype too, if that is set. nn::call() says
  // which inputs; tensors that a module reads from elsewhere are not cast.
  bool cast_forward_inputs = true;
};

struct ShardOptions {
  // Frees the gathered parameters of a unit after its forward and gathers them again for its backward
  // (ZeRO-3). If false they stay until the end of the step's last backward. The root is used from the start
  // of the forward to the end of the backward; of it, only what a nn::ForwardOnlyScope names is freed, and
  // not if ranks share one copy of it.
  bool reshard_after_forward = true;
  // Reduces gradients to shards in every backward (ZeRO-2 and 3). If false they are kept whole until the last
  // micro-batch (ZeRO-1, DDP), which sends less and needs more memory. Always on if param_dtype is set, so
  // that sums over micro-batches are kept in the tile's type.
  bool reduce_every_backward = true;
  // Divides the summed gradients by the number of data-parallel ranks. Switch it off if the loss is already
  // divided by a global count.
  bool average_gradients = true;
  // Copies the values of the first rank to all ranks, for parameters that already have values.
  bool broadcast_initial_values = true;
  // Keeps the tiles in pinned memory of the host, on a device that has streams; they come to the device when
  // their unit is gathered, beside the compute of the unit before. Tiles are read and written in the order of
  // the device's current stream, so code that reads or writes them on the host must call
  // ShardedModel::wait_for_tiles() first. Gradients stay on the device, and so do gathered parameters, as
  // long as ever.
  bool offload_parameters = false;
  // Tells the listener of ShardedModel::set_gradient_listener() of gradients.
  bool reports_gradients = false;
  MixedPrecisionPolicy mixed_precision;
  // How other kinds of parallelism have already cut the parameters; fully_shard() adds its axes to these
  // layouts.
  ParameterLayouts layouts;
};

// One parameter as this rank owns it.
struct ShardedParameter {
  std::string name;                  // as in named_parameters(); the first name of a shared parameter
  std::vector<std::string> aliases;  // other names of a shared parameter
  Layout layout;                     // layout of the whole parameter; its last axis is the sharded one
  std::vector<RankAxis> axes;        // the axes of the layout
  std::vector<int64_t> coordinates;  // coordinates of this rank on the layout's axes
  Box box;                           // what this rank holds: layout.local_box(coordinates)
  // The values in the box, a leaf that holds no other rank's values. It is stored in the parameter's type, or
  // in the type of the compute if the parameter is frozen. If this rank gathers nothing for the parameter, it
  // is the module's own parameter. Undefined until ShardedModel::materialize() if the model was built on the
  // meta device.
  //
  // After the step's last backward tile.grad() holds the gradient, if the parameter requires one. It lies on
  // the device even if the tile lies on the host (ShardOptions::offload_parameters).
  at::Tensor tile;
  bool requires_grad = true;
};

namespace detail {
class ParamGroup;
struct ShardState;
}  // namespace detail

// Takes the indices, in ShardedModel::parameters(), of parameters whose gradients are complete for the step.
using GradientListener = std::function<void(const std::vector<size_t>& parameters)>;

// The result of fully_shard(). The caller owns it; it must outlive the use of the module. Not thread-safe.
//
// A forward or backward may throw, if it does so on all ranks at the same place: the next forward finds
// everything in order. After a forward that threw, the gradients of the step so far still count. After a
// backward that threw they are not whole, and training goes on with zero_grad() only: anything else throws
// Error(Config).
class ShardedModel {
 public:
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // Returns all parameters, frozen ones too, in the order of named_parameters().
  const std::vector<ShardedParameter>& parameters() const;
  // Returns the tiles that an optimizer updates: those of the parameters that require a gradient, in the same
  // order. Some may have no rows on this rank. Throws Error(Config) before all tiles have values, since an
  // optimizer made then would train nothing.
  std::vector<at::Tensor> trained_tiles() const;
  // Returns the module's buffers by name. They are not cut: each rank has its own whole copy.
  const std::vector<std::pair<std::string, at::Tensor>>& buffers() const;
  const ShardGroups& groups() const;
  // Returns the device on which the model computes, which is that of the groups. The tiles lie there too
  // unless they are offloaded.
  at::Device device() const;

  // Allocates the tiles of a model that was built on the meta device, on device() or in the host's memory
  // beside it, and has `fill` write each tile that has no values; does nothing if all have values. If `fill`
  // throws, none of them counts as filled, and materialize() may be called again. Buffers are left as they
  // are. Memory never exceeds this rank's tiles. Not collective.
  void materialize(const std::function<void(const ShardedParameter& parameter)>& fill);
  // Allocates tiles likewise and has `write` write all of them, also those that have values. Until it has
  // returned the module counts as one without values. Not collective.
  void overwrite(const std::function<void()>& write);
  // Throws Error(Config) if a parameter or a buffer has no values yet, as every use of the module does.
  void check_has_values() const;
  // Makes the host wait until offloaded tiles have the values of all updates so far and nothing reads them
  // any more. Does nothing for tiles on the device.
  void wait_for_tiles() const;

  // Says whether the next backward is the last one of the step, after which tile.grad() is complete. True at
  // first.
  void set_is_last_micro_batch(bool is_last);
  // Says whether the next backward is the last one of the step for each unit that it reaches, while other
  // backwards reach other units (a stage of a pipeline). The gradients of such a unit, if all of its
  // parameters get one, are then reduced at once, beside what comes after; weight gradients that the backward
  // defers (ops::DeferGradientsScope) come before the reduction. False at first. Must be the same on all
  // ranks.
  void set_is_last_of_units(bool is_last);
  // Makes tile.grad() complete, as the step's last backward does. Call it in steps in which no backward was
  // said to be the last, because gradients come after it or in an order of their own (a pipeline). Does
  // nothing if one was. Collective.
  void reduce_gradients();
  // Has `listener` called within the step's last backward for each unit, when tile.grad() of its trained
  // parameters is complete and nothing in the step reads their values any more; the listener may change the
  // tiles and drop the gradients. All ranks along the axes of a unit hear of the units in the same order, so
  // the listener may be collective over these axes. An empty one ends that. Needs
  // ShardOptions::reports_gradients.
  void set_gradient_listener(GradientListener listener);
  // Begins a step: drops the gradients of the step before, whether they are whole or not.
  void zero_grad();

  // Returns the whole parameter, on the device of its tiles, on every rank along the axes that cut it.
  // Collective over these axes.
  at::Tensor full_tensor(const ShardedParameter& parameter) const;

  // Gathers all units and keeps them until reshard(): for generation and other repeated forwards. unshard()
  // is collective.
  void unshard();
  void reshard();

 private:
  friend std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module&, const ShardGroups&,
                                                   const std::vector<std::shared_ptr<torch::nn::Module>>&,
                                                   const ShardOptions&);
  ShardedModel();
  std::shared_ptr<detail::ShardState> state_;
};

// Cuts every parameter of `root`, or what options.layouts leaves of it, on dim 0 over groups.shard, or over
// the groups that the layouts give it. Each module of `units` is gathered, used and freed as one. A parameter
// in no unit belongs to the root, which stays gathered from the start of its forward to the end of its
// backward. `root` and `units` must be run through nn::call() or nn::call_hooked(); list the units in the
// order of their use.
//
// Afterwards the parameters of the module are hollow between uses, and any use of them throws Error(Config):
// read and update them through the returned object only. The exceptions are parameters that need no gathering
// (one rank holds them whole, in the type of the compute): they are their own tiles.
//
// All ranks must use the same parameters in the same backward. Gradients of all ranks are summed (and
// averaged, by option). The result of any grouping equals that of one process with all the data, to the
// rounding of MixedPrecisionPolicy's types.
//
// Throws Error(Config) for a module that is sharded already, in whole or in part, for units that are not
// below the root or share a parameter, and for a parameter without a dim to cut or of a complex or quantised
// type. Collective.
std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module& root, const ShardGroups& groups,
                                          const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                                          const ShardOptions& options = {});

}  // namespace tessera::parallel
