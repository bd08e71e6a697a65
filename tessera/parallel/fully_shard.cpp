#include "tessera/parallel/fully_shard.h"

#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/device/memory_scope.h"
#include "tessera/device/pinned_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/box_part.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fsdp/param_group.h"
#include "tessera/parallel/fsdp/shard_state.h"
#include "tessera/parallel/fsdp/unit_plan.h"
#include "tessera/parallel/gather_tensor.h"

namespace tessera::parallel {
namespace {

// Returns the groups over which `parameter` is spread: its own if its layout has some (experts), otherwise
// `groups`.
const ShardGroups& groups_of(const at::Tensor& parameter, const ShardGroups& groups,
                             const ParameterLayouts& layouts) {
  const ShardGroups* const own = layouts.groups_of(parameter);
  return own == nullptr ? groups : *own;
}

// Returns the axes of the parameter's final layout: those that other parallelism has set, then dp_replicate
// and, last, the sharded axis.
std::vector<RankAxis> all_axes(const at::Tensor& parameter, const ShardGroups& groups,
                               const ParameterLayouts& layouts) {
  std::vector<RankAxis> axes = layouts.axes_of(parameter);
  axes.push_back({kAxisDpReplicate, groups.replicate});
  axes.push_back({layouts.groups_of(parameter) == nullptr ? kAxisFsdp : kAxisExpertShard, groups.shard});
  return axes;
}

// Adds the axes of fully_shard() to the parameter's layout. The ranks along both read different data, so
// gradients are summed along both (the last field). A scalar has no dim to cut and is replicated.
Layout layout_of(const at::Tensor& parameter, at::ScalarType type, const ShardGroups& groups,
                 const ParameterLayouts& layouts) {
  const Placement cut = parameter.dim() == 0 ? Placement::replicate() : Placement::shard(0);
  const Layout before = layouts.of(parameter);
  return Layout(before.shape(), to_dtype(type), before.axes())
      .with({kAxisDpReplicate, groups.replicate->size(), Placement::replicate(), true})
      .with({layouts.groups_of(parameter) == nullptr ? kAxisFsdp : kAxisExpertShard, groups.shard->size(),
             cut, true});
}

// Returns a tensor of the full shape that has no memory.
at::Tensor without_memory(at::IntArrayRef shape, at::ScalarType type, at::Device device) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type).device(device));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

// Returns the type of the gathered parameter.
at::ScalarType compute_type(const at::Tensor& parameter, const ShardOptions& options) {
  const at::ScalarType type = parameter.scalar_type();
  return at::isFloatingType(type) ? options.mixed_precision.param_dtype.value_or(type) : type;
}

// Returns the type of the tile. A frozen parameter is never updated, so it is stored in the type of the
// compute.
at::ScalarType stored_type(const at::Tensor& parameter, const ShardOptions& options) {
  return parameter.requires_grad() ? parameter.scalar_type() : compute_type(parameter, options);
}

// Returns whether tiles lie on the host beside the device.
bool are_offloaded(const ShardOptions& options, at::Device device) {
  return options.offload_parameters && has_streams(device);
}

// Returns whether the module's own tensor is the tile: one rank holds the whole parameter in the type of the
// compute. With param_dtype that is true of frozen parameters only: a trained one shares its unit with others
// that are cast, whose gradients are reduced in every backward.
bool stays_whole(const at::Tensor& parameter, const ShardGroups& groups, const ShardOptions& options) {
  return groups.shard->size() == 1 && !are_offloaded(options, groups.shard->device()) &&
         stored_type(parameter, options) == compute_type(parameter, options) &&
         (!parameter.requires_grad() || !options.mixed_precision.param_dtype.has_value());
}

// Cuts `parameter` and returns what this rank owns of it. Afterwards the module's parameter has no memory,
// unless it is the tile itself. Collective if there are values and options.broadcast_initial_values is set.
ShardedParameter cut(const std::string& name, at::Tensor parameter, const ShardGroups& main_groups,
                     const ShardOptions& options) {
  const at::NoGradGuard no_grad;
  const ShardGroups& groups = groups_of(parameter, main_groups, options.layouts);
  ShardedParameter owned;
  owned.axes = all_axes(parameter, groups, options.layouts);
  const std::vector<RankAxis>& axes = owned.axes;
  owned.name = name;
  owned.requires_grad = parameter.requires_grad();
  const at::ScalarType stored = stored_type(parameter, options), compute = compute_type(parameter, options);
  owned.layout = layout_of(parameter, stored, groups, options.layouts);
  owned.coordinates = coordinates_on(axes);
  owned.box = owned.layout.local_box(owned.coordinates);
  if (stays_whole(parameter, groups, options)) {
    if (!parameter.is_contiguous() || parameter.scalar_type() != stored) {
      nn::materialize(parameter, parameter.detach().to(stored).contiguous());
    }
    if (!parameter.is_meta()) {
      if (options.broadcast_initial_values) groups.replicate->broadcast(parameter.detach(), 0);
    }
    owned.tile = parameter;
    return owned;
  }
  if (!parameter.is_meta()) {
    at::Tensor value = parameter.detach().contiguous();
    if (options.broadcast_initial_values) {
      // After the first broadcast the ranks of each replicate group agree; after the second all ranks have
      // the values of the rank that is first in both groups.
      groups.replicate->broadcast(value, 0);
      groups.shard->broadcast(value, 0);
    }
    // The values at hand are what the earlier axes left of the parameter, so the tile's box is taken relative
    // to that.
    const Box before = owned.layout.first_axes(axes.size() - 1)
                           .local_box({owned.coordinates.begin(), owned.coordinates.end() - 1});
    const at::Tensor part = box_part(value, relative_to(before, owned.box));
    owned.tile = are_offloaded(options, parameter.device())
                     ? empty_pinned(part.sizes(), stored, parameter.device()).copy_(part)
                     : part.to(stored, false, /*copy=*/true);
    owned.tile.set_requires_grad(owned.requires_grad);
  }
  const at::Device device = parameter.is_meta() ? groups.shard->device() : parameter.device();
  nn::materialize(parameter, without_memory(parameter.sizes(), compute, device));
  return owned;
}

void check_arguments(const detail::UnitPlan& plan, const ShardGroups& groups, const ShardOptions& options) {
  if (groups.shard == nullptr || groups.replicate == nullptr || groups.secondary == nullptr) {
    throw Error(ErrorKind::Config, "SHARD-GROUPS", "fully_shard() without a group of ranks")
        .hint("Communicator::single() is the group of this process alone");
  }
  for (const auto& [tensor, name, aliases, unit] : plan.parameters) {
    if (!find_dtype(tensor.scalar_type())) {
      throw Error(ErrorKind::Config, "SHARD-DTYPE",
                  "parameter '" + name + "' is of a type that cannot be cut")
          .got(c10::toString(tensor.scalar_type()))
          .need("floating, integer or bool");
    }
    if (tensor.dim() > 0 || stays_whole(tensor, groups_of(tensor, groups, options.layouts), options))
      continue;
    throw Error(ErrorKind::Config, "SHARD-SCALAR", "parameter '" + name + "' has no dim to cut")
        .got("a scalar")
        .need("the shape [1]");
  }
}

bool has_memory(const ShardedParameter& owned) { return owned.tile.defined() && !owned.tile.is_meta(); }

void allocate(ShardedParameter& owned, at::Device device) {
  if (has_memory(owned)) return;
  const auto options = at::TensorOptions().dtype(to_scalar_type(owned.layout.dtype())).device(device);
  if (owned.tile.defined()) return nn::materialize(owned.tile, at::empty(owned.tile.sizes(), options));
  owned.tile = at::empty(owned.box.size, options);
  owned.tile.set_requires_grad(owned.requires_grad);
}

// Allocates, in pinned memory of the host, all tiles that have no memory yet.
void allocate_on_host(std::vector<ShardedParameter>& parameters, at::Device device) {
  const auto num_bytes = [](const ShardedParameter& owned) {
    return has_memory(owned) ? 0 : owned.box.numel() * dtype_size(owned.layout.dtype());
  };
  int64_t all_bytes = 0;
  for (const ShardedParameter& owned : parameters) all_bytes += num_bytes(owned);
  require_host_memory(all_bytes, "HOST-PARAMETERS", "the parameters",
                      "shard them over more ranks (zero_stage 3), or leave them on the device");
  PinnedArena arena(device, all_bytes);
  for (ShardedParameter& owned : parameters) {
    if (has_memory(owned)) continue;
    owned.tile = arena.empty(owned.box.size, to_scalar_type(owned.layout.dtype()));
    owned.tile.set_requires_grad(owned.requires_grad);
  }
}

// The parameters of a unit, and apart from them those that are spread over other groups (experts).
struct UnitParameters {
  detail::GroupParameters own, apart;
};

std::vector<UnitParameters> parameters_by_unit(const detail::UnitPlan& plan, detail::ShardState& state) {
  std::vector<UnitParameters> units(plan.unit_names.size());
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const auto& [tensor, name, aliases, unit] = plan.parameters[i];
    const bool is_apart = state.options.layouts.groups_of(tensor) != nullptr;
    (is_apart ? units[unit].apart : units[unit].own).emplace_back(tensor, &state.parameters[i]);
  }
  return units;
}

// Makes the parameter groups of all units. Returns whether one of them has something to gather or to reduce.
bool make_groups(const detail::UnitPlan& plan, detail::ShardState& state) {
  const ShardGroups& groups = state.groups;
  const ShardOptions& options = state.options;
  // The root may use a parameter more than once in a backward, so its gradients are sums and stay wide. The
  // option takes effect below, after the root's group was made.
  MixedPrecisionPolicy policy = options.mixed_precision;
  policy.keeps_narrow_gradients = false;
  const int64_t num_replicas = groups.shard->size() * groups.replicate->size();
  const double divisor = options.average_gradients ? static_cast<double>(num_replicas) : 1.0;
  std::vector<RankAxis> axes = options.layouts.axes();
  axes.push_back({kAxisDpReplicate, groups.replicate});
  axes.push_back({kAxisFsdp, groups.shard});
  // All units over the same ranks share one set of slots, so that they take turns in it (gather_slots.h).
  const auto slots = std::make_shared<detail::GatherSlots>(groups.shard);
  const auto secondary = std::make_shared<detail::GatherSlots>(groups.secondary);
  const auto no_secondary = std::make_shared<detail::GatherSlots>(comm::Communicator::single());
  std::map<const comm::Communicator*, std::shared_ptr<detail::GatherSlots>> slots_apart;
  bool needs_hooks = false;
  const auto add_group = [&](std::unique_ptr<detail::ParamGroup> group) {
    if (options.reports_gradients) group->gradients().count_always();
    needs_hooks = needs_hooks || group->needs_gather() || group->gradients().is_needed();
    state.groups_of_unit.back().push_back(state.param_groups.size());
    state.param_groups.push_back(std::move(group));
  };
  const std::vector<UnitParameters> units = parameters_by_unit(plan, state);
  for (size_t i = 0; i < units.size(); ++i) {
    const auto& [own, apart] = units[i];
    const std::string& name = plan.unit_names[i];
    state.groups_of_unit.emplace_back();
    add_group(
        std::make_unique<detail::ParamGroup>(name, axes, groups, policy, divisor, own, slots, secondary));
    policy.keeps_narrow_gradients = options.mixed_precision.keeps_narrow_gradients && num_replicas == 1;
    if (apart.empty()) continue;
    const std::vector<RankAxis>& own_axes = apart.front().second->axes;
    auto& own_slots = slots_apart[own_axes.back().group.get()];
    if (own_slots == nullptr) own_slots = std::make_shared<detail::GatherSlots>(own_axes.back().group);
    add_group(std::make_unique<detail::ParamGroup>("experts of " + name, own_axes,
                                                   *options.layouts.groups_of(apart.front().first), policy,
                                                   divisor, apart, own_slots, no_secondary));
  }
  return needs_hooks;
}

}  // namespace

ShardedModel::ShardedModel() : state_(std::make_shared<detail::ShardState>()) {}
ShardedModel::~ShardedModel() = default;

const std::vector<ShardedParameter>& ShardedModel::parameters() const { return state_->parameters; }
const std::vector<std::pair<std::string, at::Tensor>>& ShardedModel::buffers() const {
  return state_->buffers;
}
std::vector<at::Tensor> ShardedModel::trained_tiles() const {
  state_->check_tiles();
  std::vector<at::Tensor> tiles;
  for (const ShardedParameter& owned : state_->parameters) {
    if (owned.requires_grad) tiles.push_back(owned.tile);
  }
  return tiles;
}
const ShardGroups& ShardedModel::groups() const { return state_->groups; }
at::Device ShardedModel::device() const { return state_->groups.shard->device(); }

void ShardedModel::materialize(const std::function<void(const ShardedParameter&)>& fill) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Parameters);
  if (are_offloaded(state_->options, device())) allocate_on_host(state_->parameters, device());
  for (const size_t i : state_->unfilled) {
    allocate(state_->parameters[i], device());
    fill(state_->parameters[i]);
  }
  detail::note_filled(state_);
}

void ShardedModel::overwrite(const std::function<void()>& write) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Parameters);
  state_->unfilled.clear();
  for (size_t i = 0; i < state_->parameters.size(); ++i) state_->unfilled.push_back(i);
  if (are_offloaded(state_->options, device())) {
    state_->recover();  // ends gathers in flight that a failed forward left, since they read the tiles
    wait_for_tiles();
    allocate_on_host(state_->parameters, device());
  }
  for (ShardedParameter& owned : state_->parameters) allocate(owned, device());
  write();
  detail::note_filled(state_);
}

void ShardedModel::check_has_values() const { state_->check_has_values(); }

void ShardedModel::wait_for_tiles() const {
  if (are_offloaded(state_->options, device())) current_stream(device()).synchronize();
}

void ShardedModel::set_is_last_micro_batch(bool is_last) { state_->is_last_micro_batch = is_last; }

void ShardedModel::set_is_last_of_units(bool is_last) { state_->is_last_of_units = is_last; }

void ShardedModel::reduce_gradients() {
  state_->check_gradients();
  // If the last backward was said to be the last one, its end has reduced everything already
  // (finish_backward()).
  state_->is_last_of_units = false;
  const bool is_done = std::exchange(state_->is_last_micro_batch, true);
  if (state_->is_plain) return state_->complete_empty_tiles();
  if (!is_done) state_->finish_backward();
}

void ShardedModel::set_gradient_listener(GradientListener listener) {
  TESSERA_CHECK_ARGUMENT(!listener || state_->options.reports_gradients,
                         "a listener of gradients needs ShardOptions::reports_gradients");
  state_->listener = std::move(listener);
}

void ShardedModel::zero_grad() { state_->zero_grad(); }

at::Tensor ShardedModel::full_tensor(const ShardedParameter& parameter) const {
  const at::NoGradGuard no_grad;
  state_->check_tiles();
  wait_for_tiles();
  return gather_tensor(parameter.tile.detach(), parameter.layout, parameter.axes,
                       "parameter " + parameter.name);
}

void ShardedModel::unshard() {
  state_->check_has_values();
  state_->recover();
  for (const auto& group : state_->param_groups) group->unshard();
  state_->is_kept_unsharded = true;
}

void ShardedModel::reshard() {
  state_->is_kept_unsharded = false;
  state_->recover();
  for (const auto& group : state_->param_groups) group->reshard();
}

std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module& root, const ShardGroups& groups,
                                          const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                                          const ShardOptions& options) {
  // [Note: order of fully_shard] The order of the steps matters:
  //  - Mistakes of the caller are found by plan_units() and check_arguments(), before any parameter changes
  //    and before any collective.
  //  - cut() makes the tiles and takes the memory of the whole parameters, one parameter at a time.
  //  - ParamGroup makes the parameters hollow; it needs the tiles.
  //  - note_filled() puts hooks on gradient accumulators. It waits until all tiles have values, since
  //    nn::materialize() drops the accumulator of a parameter that is its own tile.
  //  - The call hooks come last: they copy whether the model is plain, which is known when all groups exist.
  //
  // The hooks do the rest: see [Note: order of gathers and reductions] in fsdp/shard_state.h.
  const detail::UnitPlan plan = detail::plan_units(root, units);
  check_arguments(plan, groups, options);
  std::unique_ptr<ShardedModel> model(new ShardedModel);
  detail::ShardState& state = *model->state_;
  state.groups = groups;
  state.options = options;
  // Sums over micro-batches are kept in the tile's type, not in the narrower one of the compute.
  if (options.mixed_precision.param_dtype.has_value()) state.options.reduce_every_backward = true;
  for (const auto& [tensor, name, aliases, unit] : plan.parameters) {
    state.parameters.push_back(cut(name, tensor, groups, options));
    state.parameters.back().aliases = aliases;
  }
  for (const auto& entry : root.named_buffers()) state.buffers.emplace_back(entry.key(), entry.value());

  const bool needs_hooks = make_groups(plan, state);
  for (size_t i = 0; i < state.parameters.size(); ++i) {
    if (!has_memory(state.parameters[i])) state.unfilled.push_back(i);
  }
  if (state.unfilled.empty()) detail::note_filled(model->state_);
  // A process alone that computes in the stored type has nothing to gather or reduce, and trains the plain
  // module.
  state.is_plain = !needs_hooks;
  for (size_t i = 0; i < state.groups_of_unit.size(); ++i) {
    torch::nn::Module& module = i == 0 ? root : *units[i - 1];
    nn::add_call_hook(module, detail::make_shard_hook(model->state_, i));
  }
  return model;
}

}  // namespace tessera::parallel
