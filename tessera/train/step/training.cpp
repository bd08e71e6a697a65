#include "tessera/train/step/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/config/optimizer_rules.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/step_clock.h"
#include "tessera/device/memory_scope.h"
#include "tessera/optim/optimizers.h"
#include "tessera/train/setup/optimizer_targets.h"
#include "tessera/train/setup/parameter_rates.h"
#include "tessera/train/step/relora.h"
#include "tessera/train/step/run_schedule.h"
#include "tessera/train/step/step.h"

namespace tessera::train {
namespace {

// Returns the input of the next step of a run, but for its learning rate. `data` outlives it.
StepInput input_of(const data::Step& data, const config::Recipe& recipe, const TrainState& state) {
  StepInput input;
  input.micro_batches = &data.micro_batches;
  input.label_tokens = data.label_tokens;
  input.step = state.step;
  input.max_grad_norm = recipe.max_grad_norm;
  input.seed = static_cast<uint64_t>(recipe.seed);
  input.loss_scale = state.scaler.scale();
  input.skips_overflow = LossScaler::is_on(recipe);
  input.updates_in_backward = recipe.update_in_backward;
  input.num_datasets = std::ssize(data.dataset_label_tokens);
  input.measures_noise =
      recipe.gradient_noise_steps > 0 && (state.step + 1) % recipe.gradient_noise_steps == 0;
  return input;
}

// Returns what a step gave that has led to `state`; times and the learning rate are not known here.
StepMetrics step_metrics(const TrainState& state, const data::Step& data, const StepResult& result) {
  StepMetrics metrics;
  metrics.step = state.step;
  metrics.epoch = data.epochs_done;
  metrics.loss = result.loss;
  metrics.routers = result.routers;
  metrics.gradient_noise = result.noise.value_or(GradientNoise{});
  metrics.skipped_steps = result.is_updated ? 0 : 1;
  metrics.grad_norm = result.grad_norm;
  metrics.tokens = data.tokens;
  metrics.tokens_seen = state.tokens;
  metrics.label_tokens = data.label_tokens;
  metrics.token_pairs = data.token_pairs;
  metrics.loss_scale = state.scaler.scale();
  return metrics;
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const config::Recipe& recipe, const TrainedModel& trained) {
  const MemoryScope memory(MemoryCategory::OptimizerState);
  auto tiles = optimized_tiles(*trained.sharded, recipe.weight_decay, recipe.decay_norm_and_bias);
  const nn::ParameterRoles roles = trained.model->parameter_roles();
  set_learning_rates(recipe, roles, tiles);
  if (recipe.optimizer == OptimizerKind::AdamW)
    return optim::make_adamw(std::move(tiles), adamw_options(recipe));
  set_roles(*trained.model, tiles);
  set_targets(recipe.optim_target_modules, tiles);
  return optim::make_optimizer(recipe.optimizer, std::move(tiles), config::optimizer_options(recipe),
                               static_cast<uint64_t>(recipe.seed), spill_place(recipe));
}

int64_t total_steps_of(const config::BatchConfig& keys, const data::StepSource& data) {
  if (keys.max_steps > 0) return keys.max_steps;
  const double steps = keys.num_epochs * static_cast<double>(data.steps_per_epoch());
  return std::max<int64_t>(1, static_cast<int64_t>(std::llround(steps)));
}

Training::Training(config::Recipe recipe, const parallel::DeviceMesh& mesh,
                   std::unique_ptr<data::StepSource> data, TrainedModel trained)
    : recipe_(std::move(recipe)),
      mesh_(mesh),
      data_(std::move(data)),
      total_steps_(total_steps_of(recipe_, *data_)),
      trained_(std::move(trained)) {
  state_.cursor = data_->cursor();
  state_.scaler = LossScaler(recipe_);
  trained_.model->train();
  optimizer_ = make_optimizer(recipe_, trained_);
  schedule_ = make_schedule(recipe_, total_steps_, data_->samples_per_step());
}

StepMetrics Training::step() {
  const Timer timer;
  StepClock::of_this_thread().restart();
  const data::Step data = [&] {
    const SectionScope section(StepSection::Data);
    return data_->next_step();
  }();
  const double data_wait_s = timer.seconds();
  data_wait_s_ += data_wait_s;
  if (restarts_after(recipe_, state_.step)) restart_adapter(recipe_, trained_, *optimizer_, state_.step);
  StepInput input = input_of(data, recipe_, state_);
  const optim::StateTraffic before = state_traffic().value_or(optim::StateTraffic{});
  // A step that overflowed moved no weight, and the schedule waited for it, too.
  input.lr = schedule_.at(state_.step - state_.scaler.num_skipped()) * state_.plateau.factor;
  auto verdict = StepGuard::Verdict::Update;
  // The guard sees every loss and norm once, in the order of the steps. If it may refuse, run_step() asks it
  // before the update, which makes the host wait for the numbers first ([Note: one wait a step] in step.cpp).
  // Otherwise it is asked afterwards, only to warn.
  const auto judge = [&](double loss, double grad_norm) {
    verdict = state_.guard.judge(recipe_, state_.step + 1, loss, grad_norm);
    return verdict == StepGuard::Verdict::Update;
  };
  if (StepGuard::may_refuse(recipe_)) input.accepts = judge;
  const StepResult result = run_step(trained_, *optimizer_, mesh_, input);
  if (!input.accepts && result.is_finite) judge(result.loss, result.grad_norm);

  state_.scaler.update(recipe_, result.is_finite, state_.step);

  // Nothing throws from here on, so step, tokens and cursor move on together. A step without an update moves
  // them, too: the data go on, and where the guard refused it, the learning rate does.
  if (state_.step == 0) state_.first_loss = result.loss;
  state_.last_loss = result.loss;
  state_.step += 1;
  state_.tokens += data.tokens;
  state_.cursor = data.next;

  StepMetrics metrics = step_metrics(state_, data, result);
  metrics.datasets = dataset_losses(data_->datasets(), result.dataset_losses, data.dataset_label_tokens);
  metrics.lr = input.lr;
  metrics.rolls_back = verdict == StepGuard::Verdict::RollBack;
  metrics.data_wait_s = data_wait_s;
  if (const auto traffic = state_traffic()) {
    metrics.states = {traffic->bytes_read - before.bytes_read, traffic->bytes_written - before.bytes_written,
                      traffic->wait_s - before.wait_s};
  }
  metrics.step_s = timer.seconds();
  metrics.own_times = StepClock::of_this_thread().times();
  metrics.own_layers = StepClock::of_this_thread().layers();
  metrics.tokens_per_s = static_cast<double>(data.tokens) / metrics.step_s;
  return metrics;
}

std::optional<StepMetrics> Training::add_to_line(const StepMetrics& step) {
  state_.window.add(step);
  const int64_t every = std::max<int64_t>(1, count_steps(recipe_.logging_steps, total_steps_));
  if (step.step % every != 0 && !is_done()) return std::nullopt;
  return state_.window.take();
}

bool Training::note_evaluation(const Evaluated& evaluated) {
  const double deciding = deciding_metric(recipe_, evaluated).cost();
  state_.best.judge(deciding, state_.step);
  state_.early_stopping.judge(recipe_, deciding);
  if (recipe_.lr_scheduler == ScheduleKind::ReduceOnPlateau)
    state_.plateau.judge(plateau_options(recipe_), schedule_.peak, deciding);
  return has_stopped_early();
}

void Training::refuse_without_update() const {
  const int64_t skipped = state_.scaler.num_skipped();
  if (skipped == 0 || skipped < state_.step) return;
  throw Error(ErrorKind::Numerics, "NO-UPDATE",
              "gradients overflowed float16 in every step, so nothing was trained")
      .got(std::to_string(skipped) + " steps, with a loss scale of " + std::to_string(state_.scaler.scale()) +
           " at the end")
      .hint(
          "run more steps, so that the scale can fall further, or set a lower initial_scale_power, or bf16: "
          "true");
}

std::optional<StepMetrics> Training::rest_of_line() {
  if (state_.window.is_empty()) return std::nullopt;
  return state_.window.take();
}

std::vector<checkpoint::StateTensor> Training::tensors() {
  std::vector<checkpoint::StateTensor> tensors;
  for (const parallel::ShardedParameter& parameter : trained_.sharded->parameters()) {
    if (!parameter.requires_grad && !trained_.folded.contains(parameter.name)) continue;
    tensors.push_back(checkpoint::state_tensor(kParameterPrefix + parameter.name, parameter.layout,
                                               parameter.coordinates, parameter.tile));
    checkpoint::StateTensor& tensor = tensors.back();
    // The tile may lie on the host beside a device whose streams still read or write it.
    tensor.get = [&sharded = *trained_.sharded, get = std::move(tensor.get)] {
      sharded.wait_for_tiles();
      return get();
    };
    tensor.set = [&sharded = *trained_.sharded, set = std::move(tensor.set)](const at::Tensor& values) {
      sharded.wait_for_tiles();
      set(values);
    };
  }
  for (checkpoint::StateTensor& state : optimizer_->states()) {
    state.name = kOptimizerPrefix + state.name;
    tensors.push_back(std::move(state));
  }
  return tensors;
}

void Training::move_to_average(bool is_average) {
  is_at_average_ = is_average;
  optimizer_->move_to_average(is_average);
}

void Training::go_on(const TrainState& state) {
  // This may throw, so it comes before the state changes.
  data_->seek(state.cursor, recipe_.allow_data_change);
  state_ = state;
  // Other data may have made the cursor fit (allow_data_change), and another recipe has another loss scale.
  state_.cursor = data_->cursor();
  state_.scaler.fit(recipe_);
}

}  // namespace tessera::train
