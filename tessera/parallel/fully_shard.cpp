#include "tessera/parallel/fully_shard.h"

#include <unordered_map>

#include <ATen/ATen.h>
#include <c10/core/TensorImpl.h>

#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fsdp/param_group.h"
#include "tessera/parallel/fsdp/shard_state.h"

namespace tessera::parallel {
namespace {

Layout layout_of(const at::Tensor& parameter, at::ScalarType type, const ShardGroups& groups) {
  const bool is_scalar = parameter.dim() == 0;
  return Layout(
      parameter.sizes().vec(), to_dtype(type),
      {{kAxisDpReplicate, groups.replicate->size(), Placement::replicate()},
       {kAxisFsdp, groups.shard->size(), is_scalar ? Placement::replicate() : Placement::shard(0)}});
}

// Full shape, no memory.
at::Tensor hollow(at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

// Type of the gathered parameter.
at::ScalarType compute_type(const at::Tensor& parameter, const ShardOptions& options) {
  const at::ScalarType type = parameter.scalar_type();
  return at::isFloatingType(type) ? options.mixed_precision.param_dtype.value_or(type) : type;
}

// Type of the tile: what is never updated needs no more than the compute does.
at::ScalarType stored_type(const at::Tensor& parameter, const ShardOptions& options) {
  return parameter.requires_grad() ? parameter.scalar_type() : compute_type(parameter, options);
}

// Cuts `parameter` and returns what this rank owns. Afterwards the module's parameter is hollow, unless the
// tile is the parameter itself.
ShardedParameter cut(const std::string& name, at::Tensor parameter, const ShardGroups& groups,
                     const ShardOptions& options) {
  const at::NoGradGuard no_grad;
  ShardedParameter owned;
  owned.name = name;
  owned.requires_grad = parameter.requires_grad();
  const at::ScalarType stored = stored_type(parameter, options), compute = compute_type(parameter, options);
  owned.layout = layout_of(parameter, stored, groups);
  owned.box = owned.layout.local_box({groups.replicate->rank(), groups.shard->rank()});
  // Where one rank holds whole parameters in the type of the compute, the module's own tensor is the tile.
  // Not for a trained one beside others that are cast: their gradients are reduced in every backward.
  const bool is_tile = groups.shard->size() == 1 && stored == compute &&
                       (!owned.requires_grad || !options.mixed_precision.param_dtype.has_value());
  TESSERA_ASSERT(parameter.dim() > 0 || is_tile,
                 "parameter " + name + " has no dim to cut: give it the shape [1]");

  if (is_tile) {
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
      groups.replicate->broadcast(value, 0);
      groups.shard->broadcast(value, 0);
    }
    owned.tile = value.narrow(0, owned.box.offset[0], owned.box.size[0]).to(stored, false, /*copy=*/true);
    owned.tile.set_requires_grad(owned.requires_grad);
  }
  nn::materialize(parameter, hollow(parameter.sizes(), compute));
  return owned;
}

}  // namespace

ShardedModel::ShardedModel() : state_(std::make_shared<detail::ShardState>()) {}
ShardedModel::~ShardedModel() = default;

const std::vector<ShardedParameter>& ShardedModel::parameters() const { return state_->parameters; }
const ShardGroups& ShardedModel::groups() const { return state_->groups; }

void ShardedModel::materialize(const std::function<void(const ShardedParameter&)>& fill) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::Parameters);
  for (ShardedParameter& owned : state_->parameters) {
    if (!owned.tile.defined()) {
      owned.tile = at::empty(owned.box.size, at::TensorOptions().dtype(to_scalar_type(owned.layout.dtype())));
      owned.tile.set_requires_grad(owned.requires_grad);
    } else if (owned.tile.is_meta()) {
      nn::materialize(owned.tile,
                      at::empty(owned.tile.sizes(), at::TensorOptions().dtype(owned.tile.scalar_type())));
    } else {
      continue;
    }
    fill(owned);
  }
  detail::install_gradient_hooks(state_);
}

void ShardedModel::set_is_last_micro_batch(bool is_last) { state_->is_last_micro_batch = is_last; }

void ShardedModel::zero_grad() { state_->zero_grad(); }

at::Tensor ShardedModel::full_tensor(const ShardedParameter& parameter) const {
  const at::NoGradGuard no_grad;
  const at::Tensor tile = parameter.tile.detach();
  const int64_t num_ranks = state_->groups.shard->size();
  if (num_ranks == 1) return tile.clone();
  std::vector<int64_t> padded = parameter.layout.padded_local_shape();
  const at::Tensor own = at::zeros(padded, tile.options());
  own.narrow(0, 0, tile.size(0)).copy_(tile);
  padded[0] *= num_ranks;
  const at::Tensor all = at::empty(padded, tile.options());
  state_->groups.shard->all_gather_single(all, own, false, {{{}, "parameter " + parameter.name}});
  // Pieces are full but for the last ones, so the rows lie in order with the padding at the end.
  return all.narrow(0, 0, parameter.layout.shape()[0]);
}

void ShardedModel::unshard() {
  state_->recover();
  for (const auto& unit : state_->units) unit->unshard();
  state_->is_kept_unsharded = true;
}

void ShardedModel::reshard() {
  state_->is_kept_unsharded = false;
  state_->recover();
  for (const auto& unit : state_->units) unit->reshard();
}

std::unique_ptr<ShardedModel> fully_shard(torch::nn::Module& root, const ShardGroups& groups,
                                          const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                                          const ShardOptions& options) {
  std::unique_ptr<ShardedModel> model(new ShardedModel);
  detail::ShardState& state = *model->state_;
  state.groups = groups;
  state.options = options;
  // Sums over micro-batches are kept in the tile's type, not in the narrower one of the compute.
  if (options.mixed_precision.param_dtype.has_value()) state.options.reduce_every_backward = true;
  // The gradient of a tile that is the parameter holds the micro-batches so far: it is summed over the ranks
  // once.
  if (groups.shard->size() == 1 && !options.mixed_precision.param_dtype.has_value()) {
    state.options.reduce_every_backward = false;
  }
  // The root may use a parameter more than once in a backward: its gradients are sums.
  ShardOptions root_options = options;
  root_options.mixed_precision.keeps_narrow_gradients = false;

  // Every tensor once, whatever the number of names it has.
  std::unordered_map<const c10::TensorImpl*, int64_t> index_of;
  std::vector<at::Tensor> tensors;
  for (const auto& entry : root.named_parameters()) {
    const c10::TensorImpl* impl = entry.value().unsafeGetTensorImpl();
    if (!index_of.emplace(impl, static_cast<int64_t>(tensors.size())).second) continue;
    tensors.push_back(entry.value());
    state.parameters.push_back(cut(entry.key(), entry.value(), groups, options));
  }

  std::unordered_map<const torch::nn::Module*, std::string> name_of;
  for (const auto& entry : root.named_modules("", false)) name_of[entry.value().get()] = entry.key();
  std::vector<int64_t> unit_of(tensors.size(), 0);  // 0: the root
  const auto slots = std::make_shared<detail::GatherSlots>(groups.shard);
  state.units.push_back(
      std::make_unique<detail::ParamGroup>("the root", groups, root_options, state.parameters, slots));
  for (const auto& module : units) {
    const auto name = name_of.find(module.get());
    TESSERA_ASSERT(name != name_of.end(), "a unit must be a module below the root");
    auto unit = std::make_unique<detail::ParamGroup>(name->second, groups, options, state.parameters, slots);
    for (const auto& entry : module->named_parameters()) {
      const int64_t index = index_of.at(entry.value().unsafeGetTensorImpl());
      const auto number = static_cast<int64_t>(state.units.size());
      if (unit_of[index] == number) continue;  // two names of one tensor
      TESSERA_ASSERT(unit_of[index] == 0, "parameter " + entry.key() + " of unit " + name->second +
                                              " is shared with another unit: it must belong to the root");
      unit_of[index] = number;
      unit->add(tensors[index], index);
    }
    state.units.push_back(std::move(unit));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (unit_of[i] == 0) state.units[0]->add(tensors[i], static_cast<int64_t>(i));
  }

  bool is_meta = false, needs_hooks = false;
  for (const auto& unit : state.units) {
    unit->finish_setup();
    needs_hooks = needs_hooks || unit->needs_reduce();
  }
  for (const ShardedParameter& owned : state.parameters) {
    is_meta = is_meta || !owned.tile.defined() || owned.tile.is_meta();
  }
  if (!is_meta) detail::install_gradient_hooks(model->state_);
  // A process alone, in the stored type, trains the plain module.
  if (!needs_hooks) return model;
  for (size_t i = 0; i < state.units.size(); ++i) {
    torch::nn::Module& module = i == 0 ? root : *units[i - 1];
    nn::add_call_hook(module, detail::make_shard_hook(model->state_, i));
  }
  return model;
}

}  // namespace tessera::parallel
