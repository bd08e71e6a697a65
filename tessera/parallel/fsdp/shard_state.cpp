#include "tessera/parallel/fsdp/shard_state.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/serialize/output-archive.h>

#include "tessera/core/error.h"
#include "tessera/ops/deferred_gradient.h"

namespace tessera::parallel::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Hooks hold the state weakly: the ShardedModel owns it, and a module that is used after that is gone gets an
// error.
using WeakState = std::weak_ptr<ShardState>;

// A function that runs in the backward, as a value that autograd's context can hold.
struct BackwardStep : torch::CustomClassHolder {
  explicit BackwardStep(std::function<void()> step) : run(std::move(step)) {}
  std::function<void()> run;
};

// The identity; runs `step` when the gradient passes on its way back.
class OnGradient : public torch::autograd::Function<OnGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value,
                            const c10::intrusive_ptr<BackwardStep>& step) {
    context->saved_data["step"] = c10::IValue::make_capsule(step);
    return value.view_as(value);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    c10::static_intrusive_pointer_cast<BackwardStep>(context->saved_data["step"].toCapsule())->run();
    return {gradients[0], at::Tensor()};
  }
};

at::Tensor on_gradient(const at::Tensor& value, std::function<void()> step) {
  if (!value.requires_grad()) return value;
  return OnGradient::apply(value, c10::make_intrusive<BackwardStep>(std::move(step)));
}

// Sits on a parameter's gradient accumulator, which runs once in a backward, when all of the gradient is
// there: both what autograd sums and what ops add directly.
class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(WeakState state, size_t group, size_t param)
      : state_(std::move(state)), group_(group), param_(param) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    const auto state = state_.lock();
    if (state == nullptr) return outputs;
    state->enter_backward(state);
    ParamGroup& group = *state->param_groups[group_];
    const bool is_last = state->is_last_micro_batch || state->is_last_of_units;
    if (!group.gradients().note_gradient(param_) || !(is_last || state->reduces_now(group))) return outputs;
    ops::DeferredGradients* const* later = ops::DeferGradientsScope::current();
    if (later == nullptr || !state->is_last_of_units) {
      state->start_reduce(group_, is_last);
      return outputs;
    }
    // The backward leaves weight gradients over for later, those of this unit among them. They are already in
    // the list, so the reduction is appended behind them and does not start at the end of this backward.
    group.gradients().postpone();
    (*later)->add([weak = state_, number = group_] {
      if (const auto s = weak.lock()) s->start_reduce(number, /*is_last=*/true);
    });
    return outputs;
  }

 private:
  WeakState state_;
  size_t group_, param_;
};

// The engine's callback at the end of a backward. The engine of a backward that throws drops it without a
// call; the destructor then marks the backward as interrupted.
class EndOfBackward {
 public:
  explicit EndOfBackward(std::shared_ptr<ShardState> state) : state_(std::move(state)) {}
  EndOfBackward(const EndOfBackward&) = delete;
  EndOfBackward& operator=(const EndOfBackward&) = delete;
  ~EndOfBackward() {
    if (is_done_) return;
    state_->is_in_backward = false;
    state_->is_interrupted = state_->has_partial_gradients = true;
  }
  void run() {
    state_->finish_backward();
    is_done_ = true;
  }

 private:
  std::shared_ptr<ShardState> state_;
  bool is_done_ = false;
};

class ShardHook : public nn::CallHook {
 public:
  ShardHook(const std::shared_ptr<ShardState>& state, size_t unit)
      : state_(state), unit_(unit), is_plain_(state->is_plain), is_hollow_(state->needs_gather(unit)) {
    const MixedPrecisionPolicy& policy = state->options.mixed_precision;
    if (policy.cast_forward_inputs) input_type_ = policy.param_dtype;
  }

  std::optional<at::ScalarType> input_type() const override { return input_type_; }
  // A hollow module must not be saved, as nothing of its parameters would be written: torch::save() calls
  // save() of the children that are serializable, and this one throws.
  bool is_serializable() const override { return is_hollow_; }
  void save(torch::serialize::OutputArchive&) const override {
    throw Error(ErrorKind::Config, "SHARDED-SAVE",
                "torch::save() of a sharded module would write empty weights")
        .hint("checkpoint::full_state_dict() or checkpoint::save_state_dict() gather them");
  }
  // Runs as part of zero_grad() of the module, which calls that of its children.
  void zero_grad(bool) override {
    const auto state = state_.lock();
    if (state != nullptr && unit_ == 0 && !is_plain_) state->zero_grad();
  }

  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    const auto state = state_.lock();
    if (state != nullptr) state->check_has_values();
    // A unit that needs no gather can be evaluated even after the ShardedModel is gone.
    const bool needs_no_state = !is_hollow_ && !at::GradMode::is_enabled();
    if (is_plain_ || (state == nullptr && needs_no_state)) return next(input);
    if (state == nullptr) throw gone();
    // A step begins with the root's forward, so a forward or backward that threw is cleaned up here.
    if (unit_ == 0) {
      state->recover();
      if (at::GradMode::is_enabled()) {
        state->check_gradients();
        state->check_requires_grad();
      }
    }
    try {
      return run(state, input, next);
    } catch (...) {
      state->is_interrupted = true;
      throw;
    }
  }

 private:
  at::Tensor run(const std::shared_ptr<ShardState>& state, const at::Tensor& input, const Forward& next) {
    state->unshard_with_prefetch(unit_, +1);
    const WeakState weak = state_;
    const size_t unit = unit_;
    // The unit's parameters are no longer needed once the gradient of its input is there.
    const at::Tensor watched_input = on_gradient(input, [weak, unit] {
      if (const auto s = weak.lock()) s->free_where_due(unit, Moment::Backward);
    });
    const at::Tensor output = next(watched_input);
    state->free_where_due(unit, output.requires_grad() ? Moment::Forward : Moment::ForwardWithoutGraph);
    const int64_t freed = unit == 0 && output.requires_grad() ? state->free_forward_only() : 0;
    return on_gradient(output, [weak, unit, freed] {
      const auto s = weak.lock();
      if (s == nullptr) throw gone();
      s->enter_backward(s);
      s->unshard_with_prefetch(unit, -1, freed);
    });
  }

  static Error gone() {
    return Error(ErrorKind::Config, "SHARDED-MODEL-GONE",
                 "the ShardedModel of this module, which gathers parameters and reduces gradients, was "
                 "destroyed")
        .hint("keep the object that fully_shard() returns as long as the module is used");
  }

  WeakState state_;
  size_t unit_;
  bool is_plain_, is_hollow_;
  std::optional<at::ScalarType> input_type_;
};

Error no_values(const std::string& kind, const std::string& name) {
  return Error(ErrorKind::Config, "NO-VALUES", kind + " '" + name + "' has no values yet")
      .hint(
          "load them: checkpoint::load_state_dict() fills all, ShardedModel::materialize() the parameters; "
          "after "
          "a load that failed, load again");
}

}  // namespace

void ShardState::unshard_with_prefetch(size_t i, int direction, int64_t freed) {
  check_tiles();
  const ShardKind kind = direction < 0 ? ShardKind::Secondary : ShardKind::Primary;
  for (const size_t group : groups_of_unit[i]) {
    if (!param_groups[group]->is_freed_as(freed)) param_groups[group]->unshard(kind);
  }
  // The root's forward goes on with unit 1, its backward with the last unit. The root itself is never
  // prefetched: it is gathered before the units in both directions.
  const size_t count = groups_of_unit.size();
  const size_t neighbour = i == 0 && direction < 0 ? count - 1 : i + static_cast<size_t>(direction);
  if (neighbour == 0 || neighbour >= count) return;
  for (const size_t group : groups_of_unit[neighbour]) param_groups[group]->start_unshard(kind);
}

bool ShardState::frees(size_t i, Moment moment) const {
  if (is_kept_unsharded) return false;
  // The optimizer changes the tiles after the last micro-batch, so no gathered copy may outlive it.
  if (moment == Moment::EndOfBackward && is_last_micro_batch) return true;
  if (!options.reshard_after_forward) return false;
  // The root is used until the end of the backward.
  return i > 0 || moment == Moment::ForwardWithoutGraph || moment == Moment::EndOfBackward;
}

void ShardState::free_where_due(size_t i, Moment moment) {
  if (!frees(i, moment)) return;
  for (const size_t group : groups_of_unit[i]) {
    if (moment == Moment::Forward) param_groups[group]->keep_secondary();
    param_groups[group]->reshard();
  }
}

int64_t ShardState::free_forward_only() {
  if (is_kept_unsharded || !options.reshard_after_forward) return 0;
  return param_groups[0]->free_named(nn::ForwardOnlyScope::names);
}

void ShardState::start_reduce(size_t i, bool is_last) {
  // finish() is a wait in the current stream on a device, and a wait of the host otherwise. By now the
  // reduction has had the time of a unit's backward.
  if (last_reducing != i) finish_reduce(last_reducing);
  param_groups[i]->gradients().start(is_last);
  last_reducing = i;
  if (!param_groups[i]->gradients().is_waiting()) finish_reduce(i);
}

void ShardState::finish_reduce(size_t i) {
  GradientReduce& gradients = param_groups[i]->gradients();
  if (!gradients.finish() || !gradients.is_last_started() || !listener) return;
  std::vector<size_t> complete;
  for (const UnitParam& param : param_groups[i]->params()) {
    if (!param.is_trained()) continue;
    complete_empty_tile(*param.owned);
    complete.push_back(static_cast<size_t>(param.owned - parameters.data()));
  }
  if (!complete.empty()) listener(complete);
}

void ShardState::enter_backward(const std::shared_ptr<ShardState>& self) {
  if (is_in_backward) return;
  check_gradients();
  is_in_backward = true;
  for (const auto& group : param_groups) group->set_hollow_gradients(false);
  const auto end = std::make_shared<EndOfBackward>(self);
  torch::autograd::Engine::get_default_engine().queue_callback([end] { end->run(); });
}

void ShardState::finish_backward() {
  is_in_backward = false;
  // First the units whose gradients did not all arrive, since a parameter took no part in this loss; last
  // used first, and the same on every rank. A unit that took no part at all has nothing to send before the
  // last micro-batch.
  for (size_t i = param_groups.size(); i-- > 0;) {
    const bool has_any = is_last_micro_batch || param_groups[i]->gradients().has_any();
    if (has_any && reduces_now(*param_groups[i])) start_reduce(i, is_last_micro_batch);
  }
  for (size_t i = param_groups.size(); i-- > 0;) {
    GradientReduce& gradients = param_groups[i]->gradients();
    // Its reduction runs on beside the backwards of other units (a pipeline); reduce_gradients() finishes it.
    if (gradients.is_last_started() && !is_last_micro_batch) continue;
    finish_reduce(i);
    gradients.end_backward();
  }
  for (size_t i = 0; i < groups_of_unit.size(); ++i) free_where_due(i, Moment::EndOfBackward);
  if (!is_last_micro_batch) return;
  // The optimizer is going to change the tiles, so the secondary shards are out of date.
  for (const auto& group : param_groups) group->drop_secondary();
  if (!listener) complete_empty_tiles();
  for (const auto& group : param_groups) group->set_hollow_gradients(true);
}

bool ShardState::needs_gather(size_t unit) const {
  return std::ranges::any_of(groups_of_unit[unit],
                             [this](size_t group) { return param_groups[group]->needs_gather(); });
}

void ShardState::complete_empty_tile(ShardedParameter& owned) const {
  const bool is_empty = owned.requires_grad && owned.tile.numel() == 0;
  if (is_empty && !owned.tile.grad().defined())
    owned.tile.mutable_grad() = at::zeros_like(owned.tile.detach(), groups.shard->device());
}

void ShardState::complete_empty_tiles() {
  for (ShardedParameter& owned : parameters) complete_empty_tile(owned);
}

void ShardState::recover() {
  if (is_interrupted) clear_units();
}

void ShardState::clear_units() {
  for (size_t i = param_groups.size(); i-- > 0;) {
    param_groups[i]->gradients().cancel();
    param_groups[i]->drop_secondary();
    if (!is_kept_unsharded) param_groups[i]->reshard();
  }
  is_interrupted = false;
}

void ShardState::check_tiles() const {
  if (!unfilled.empty()) throw no_values("parameter", parameters[unfilled.front()].name);
}

void ShardState::check_has_values() const {
  check_tiles();
  for (const auto& [name, buffer] : buffers) {
    if (buffer.is_meta()) throw no_values("buffer", name);
  }
}

void ShardState::check_gradients() const {
  if (!has_partial_gradients) return;
  throw Error(ErrorKind::Config, "PARTIAL-GRADIENTS",
              "a backward of this step threw an exception, so the gradients of the step are incomplete")
      .hint("begin the step again with ShardedModel::zero_grad()");
}

void ShardState::check_requires_grad() const {
  for (const auto& group : param_groups) {
    for (const UnitParam& param : group->params()) {
      const ShardedParameter& owned = *param.owned;
      if (param.parameter.requires_grad() == owned.requires_grad) continue;
      throw Error(ErrorKind::Config, "SHARDED-REQUIRES-GRAD",
                  "requires_grad of parameter '" + owned.name + "' was changed after fully_shard()")
          .got(owned.requires_grad ? "false" : "true")
          .need(owned.requires_grad ? "true" : "false")
          .hint("freeze parameters before fully_shard(), which sets up what is trained");
    }
  }
}

void ShardState::zero_grad() {
  // This is done in any case: a forward whose loss was dropped has left parameters gathered, and the tiles
  // may change before the next forward.
  clear_units();
  has_partial_gradients = false;
  for (ShardedParameter& owned : parameters) {
    if (owned.tile.defined()) owned.tile.mutable_grad().reset();
  }
  for (const auto& group : param_groups) group->zero_grad();
}

void note_filled(const std::shared_ptr<ShardState>& state) {
  state->unfilled.clear();
  if (std::exchange(state->has_gradient_hooks, true)) return;
  for (size_t group = 0; group < state->param_groups.size(); ++group) {
    state->param_groups[group]->accumulate_directly();
    auto& params = state->param_groups[group]->params();
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i].is_trained() || params[i].parameter.numel() == 0) continue;
      if (!state->param_groups[group]->gradients().is_needed()) continue;
      params[i].accumulator = torch::autograd::impl::grad_accumulator(params[i].parameter);
      params[i].accumulator->add_post_hook(std::make_unique<GradientHook>(state, group, i));
    }
  }
}

std::shared_ptr<nn::CallHook> make_shard_hook(const std::shared_ptr<ShardState>& state, size_t unit) {
  return std::make_shared<ShardHook>(state, unit);
}

bool has_shard_hook(const torch::nn::Module& module) {
  for (auto hook = nn::find_call_hook(module); hook != nullptr; hook = hook->inner) {
    if (dynamic_cast<const ShardHook*>(hook.get()) != nullptr) return true;
  }
  return false;
}

}  // namespace tessera::parallel::detail
