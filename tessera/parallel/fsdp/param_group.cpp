#include "tessera/parallel/fsdp/param_group.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/device/memory_scope.h"
#include "tessera/ops/direct_gradient.h"

namespace tessera::parallel::detail {

ParamGroup::ParamGroup(std::string name, std::vector<RankAxis> axes, const ShardGroups& groups,
                       const MixedPrecisionPolicy& policy, double divisor, const GroupParameters& parameters,
                       std::shared_ptr<GatherSlots> slots, std::shared_ptr<GatherSlots> secondary)
    : name_(std::move(name)),
      axes_(std::move(axes)),
      slots_(std::move(slots)),
      secondary_slots_(std::move(secondary)) {
  const int64_t num_secondary = secondary_slots_->group().size();
  const bool are_whole = slots_->group().size() == 1 && !policy.param_dtype.has_value();
  for (const auto& [parameter, owned] : parameters) {
    UnitParam& param = params_.emplace_back(parameter, *owned, slots_->group(), num_secondary, name_);
    if (policy.codes_parameters && !param.is_tile && slots_->group().size() > 1)
      param.tile_codes = param.make_codes(8, parameter.scalar_type());
    reduces_once_ = reduces_once_ || (are_whole && params_.back().is_trained());
    needs_gather_ = needs_gather_ || (!params_.back().is_tile && params_.back().num_bytes() > 0);
  }
  if (!needs_gather_) state_ = State::Gathered;
  gradients_ =
      std::make_unique<GradientReduce>(params_, axes_, groups, policy, divisor, "gradients of " + name_);
}

void ParamGroup::accumulate_directly() {
  for (const UnitParam& param : params_) {
    if (!param.is_trained()) continue;
    // put_in_place() copies the mark together with the rest of a tensor, so `whole` and `hollow` need it too.
    for (const at::Tensor& tensor : {param.parameter, param.whole, param.hollow}) {
      if (tensor.defined()) ops::accumulate_directly(tensor, param.gradient_type);
    }
  }
}

void ParamGroup::start_unshard(ShardKind kind) {
  if (state_ != State::Sharded) return;
  if (!has_secondary_) kind = ShardKind::Primary;
  GatherSlots& slots = kind == ShardKind::Primary ? *slots_ : *secondary_slots_;
  gather_ = start_gather(params_, kind, slots, "parameters of " + name_);
  state_ = State::Gathering;
}

void ParamGroup::unshard(ShardKind kind) {
  if (state_ == State::Gathered) return;
  // A use that reads the freed parameters too gathers everything anew.
  if (state_ == State::PartlyFreed) reshard();
  const MemoryScope memory(MemoryCategory::GatheredParameters);
  const at::NoGradGuard no_grad;
  start_unshard(kind);
  gather_->finish();
  for (UnitParam& param : params_) {
    if (!param.is_tile) param.show();
  }
  state_ = State::Gathered;
}

void ParamGroup::reshard() {
  if (!needs_gather_ || state_ == State::Sharded) return;
  for (UnitParam& param : params_) {
    // The parameters let go of their memory before the gather gives the slot back to other units. In the
    // state Gathering they are still hollow.
    if (!param.is_tile && state_ != State::Gathering) param.free();
  }
  gather_->free();  // waits first if this was a prefetch that nobody used
  gather_.reset();
  state_ = State::Sharded;
}

void ParamGroup::keep_secondary() {
  comm::Communicator& group = secondary_slots_->group();
  if (group.size() == 1 || !needs_gather_ || state_ != State::Gathered) return;
  const MemoryScope memory(MemoryCategory::GatheredParameters);
  const at::NoGradGuard no_grad;
  for (UnitParam& param : params_) {
    if (param.is_tile) continue;
    const auto [begin, count] = param.secondary_pieces[group.rank()];
    // A copy, since the memory of `whole` is freed, or is a slot that another unit overwrites.
    param.secondary = param.whole.view({-1}).narrow(0, begin, count).clone();
  }
  has_secondary_ = true;
}

void ParamGroup::drop_secondary() {
  for (UnitParam& param : params_) param.secondary.reset();
  has_secondary_ = false;
}

int64_t ParamGroup::free_named(const std::function<bool(const at::Tensor&)>& is_named) {
  if (!needs_gather_ || state_ != State::Gathered || !gather_->can_free_one()) return 0;
  for (UnitParam& param : params_) {
    if (param.is_tile || !is_named(param.parameter)) continue;
    param.free();
    state_ = State::PartlyFreed;
  }
  return state_ == State::PartlyFreed ? ++num_partly_freed_ : 0;
}

void ParamGroup::zero_grad() {
  for (UnitParam& param : params_) param.parameter.mutable_grad().reset();
}

void ParamGroup::set_hollow_gradients(bool is_hollow) {
  for (UnitParam& param : params_) {
    if (!param.is_trained() || param.is_tile) continue;
    at::Tensor& grad = param.parameter.mutable_grad();
    if (is_hollow && !grad.defined()) grad = param.hollow_gradient;
    if (!is_hollow && grad.is_same(param.hollow_gradient)) grad.reset();
  }
}

}  // namespace tessera::parallel::detail
