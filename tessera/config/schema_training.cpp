#include "tessera/config/optimizer_choices.h"
#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kStateTypes[] = {
    {"float32", as_int(StateType::OfWeights)},
    {"fp32", as_int(StateType::OfWeights)},
    {"bfloat16", as_int(StateType::BFloat16)},
    {"bf16", as_int(StateType::BFloat16)},
    {"float16", kNotBuilt, "its range is too small for optimizer states; write bfloat16"},
    {"fp16", kNotBuilt, "its range is too small for optimizer states; write bfloat16"},
    {"fp8", kNotBuilt, "not supported yet; write bfloat16"},
};
constexpr Choice kLrScalings[] = {
    {"none", as_int(LrScaling::None)},
    {"linear", as_int(LrScaling::Linear)},
    {"sqrt", as_int(LrScaling::Sqrt)},
};
constexpr Choice kSchedulers[] = {
    {"cosine", as_int(ScheduleKind::Cosine)},
    {"linear", as_int(ScheduleKind::Linear)},
    {"constant", as_int(ScheduleKind::Constant)},
    {"constant_with_warmup", as_int(ScheduleKind::ConstantWithWarmup)},
    {"cosine_with_restarts", as_int(ScheduleKind::CosineWithRestarts)},
    {"polynomial", as_int(ScheduleKind::Polynomial)},
    {"inverse_sqrt", as_int(ScheduleKind::InverseSqrt)},
    {"warmup_stable_decay", as_int(ScheduleKind::WarmupStableDecay)},
    {"wsd", as_int(ScheduleKind::WarmupStableDecay)},
    {"one_cycle", as_int(ScheduleKind::OneCycle),
     "only the learning rate is cycled; adam_beta1 stays constant"},
    {"rex", as_int(ScheduleKind::Rex)},
    {"warmup_lr", as_int(ScheduleKind::WarmupLr)},
    {"warmup_decay_lr", as_int(ScheduleKind::WarmupDecayLr)},
    {"warmup_cosine_lr", as_int(ScheduleKind::WarmupCosineLr)},
    {"cosine_with_min_lr", as_int(ScheduleKind::Cosine)},
    {"cosine_warmup_with_min_lr", kNotBuilt, "write lr_scheduler: cosine and cosine_min_lr_ratio"},
    {"reduce_lr_on_plateau", as_int(ScheduleKind::ReduceOnPlateau)},
    {"lr_range_test", as_int(ScheduleKind::RangeTest)},
    {"greedy", kNotBuilt,
     "not supported yet; write reduce_lr_on_plateau, which only lowers the learning rate"},
};
constexpr Choice kPlateauModes[] = {
    {"rel", as_int(PlateauMode::Relative)},
    {"abs", as_int(PlateauMode::Absolute)},
};
constexpr Choice kRamps[] = {
    {"linear", as_int(RampKind::Linear)},
    {"cosine", as_int(RampKind::Cosine)},
    {"1-sqrt", as_int(RampKind::OneMinusSqrt)},
};
constexpr Choice kWarmupRamps[] = {
    {"linear", as_int(RampKind::Linear)},
    {"cosine", as_int(RampKind::Cosine)},
    {"1-sqrt", as_int(RampKind::OneMinusSqrt)},
    {"log", as_int(RampKind::Log)},
};
constexpr Choice kDtypes[] = {
    {"float32", as_int(ComputeType::Float32)},
    {"fp32", as_int(ComputeType::Float32)},
    {"float64", as_int(ComputeType::Float64)},
    {"fp64", as_int(ComputeType::Float64)},
    {"bfloat16", as_int(ComputeType::BFloat16)},
    {"bf16", as_int(ComputeType::BFloat16)},
    {"auto", as_int(ComputeType::Auto)},
    {"float16", as_int(ComputeType::Float16)},
    {"fp16", as_int(ComputeType::Float16)},
    // set_native() of translate.cpp adds fp8: true.
    {"fp8", as_int(ComputeType::BFloat16)},
};
constexpr Choice kCheckpointing[] = {
    {"false", as_int(Checkpointing::Off)},
    {"true", as_int(Checkpointing::Block)},
    {"mlp", as_int(Checkpointing::Mlp)},
    // set_native() of translate.cpp adds activation_offloading: true for these two.
    {"offload", as_int(Checkpointing::Block)},
    {"unsloth", as_int(Checkpointing::Block)},
    {"offload_disk", kNotBuilt, "offloading to a drive is not supported yet; write true"},
};
constexpr Choice kActivationOffloading[] = {
    {"false", as_int(Offloading::Off)},
    {"true", as_int(Offloading::Host)},
    {"legacy", as_int(Offloading::Host)},
    {"hidden_states", as_int(Offloading::Host)},
    {"disk", kNotBuilt, "offloading to a drive is not supported yet; write true"},
};

const Key<Recipe> kKeys[] = {
    {"micro_batch_size", &Recipe::micro_batch_size, 1, 65536},
    {"gradient_accumulation_steps", &Recipe::gradient_accumulation_steps, 1, 1e6},
    {"global_batch_size", &Recipe::global_batch_size, 0, 1e12},
    {"num_epochs", &Recipe::num_epochs, kTiny, 1e6},
    {"max_steps", &Recipe::max_steps, 0, kMaxSteps},
    {"learning_rate", &Recipe::learning_rate, 0, 1e3},
    {"lr_scaling", enum_field<&Recipe::lr_scaling>, 0, 0, kLrScalings},
    {"base_batch_size", &Recipe::base_batch_size, 0, 1e12},
    {"optimizer", enum_field<&Recipe::optimizer>, 0, 0, kOptimizers},
    {"optimizer_args", &Recipe::optimizer_args, 0, 0, kOptimizerArgs},
    {"optim_target_modules", &Recipe::optim_target_modules},
    {"optimizer_state_dtype", enum_field<&Recipe::optimizer_state_dtype>, 0, 0, kStateTypes},
    {"lr_scheduler", enum_field<&Recipe::lr_scheduler>, 0, 0, kSchedulers},
    {"cosine_min_lr_ratio", &Recipe::cosine_min_lr_ratio, 0, 1},
    {"cosine_constant_lr_ratio", &Recipe::cosine_constant_lr_ratio, 0, 1},
    {"lr_quadratic_warmup", &Recipe::lr_quadratic_warmup},
    {"lr_cycles", &Recipe::lr_cycles, 0, 1e6},
    {"lr_end", &Recipe::lr_end, 0, 1e3},
    {"lr_power", &Recipe::lr_power, 0, 1e3},
    {"lr_timescale", &Recipe::lr_timescale, 0, kMaxSteps},
    {"lr_decay_steps", &Recipe::lr_decay_steps, 0, kMaxSteps},
    {"lr_stable_steps", &Recipe::lr_stable_steps, 0, kMaxSteps},
    {"lr_warmup_type", enum_field<&Recipe::lr_warmup_type>, 0, 0, kWarmupRamps},
    {"lr_decay_type", enum_field<&Recipe::lr_decay_type>, 0, 0, kRamps},
    {"lr_div_factor", &Recipe::lr_div_factor, 1, 1e12},
    {"lr_final_div_factor", &Recipe::lr_final_div_factor, 1, 1e12},
    {"lr_range_test_step_size", &Recipe::lr_range_test_step_size, 1, kMaxSteps},
    {"lr_range_test_step_rate", &Recipe::lr_range_test_step_rate, 0, 1e9},
    {"lr_range_test_staircase", &Recipe::lr_range_test_staircase},
    {"lr_range_test_max_lr", &Recipe::lr_range_test_max_lr, 0, 1e3},
    {"lr_min", &Recipe::lr_min, 0, 1e3},
    {"lr_plateau_factor", &Recipe::lr_plateau_factor, 0, kBelowOne},
    {"lr_plateau_patience", &Recipe::lr_plateau_patience, 0, kMaxSteps},
    {"lr_plateau_threshold", &Recipe::lr_plateau_threshold, 0, 1e12},
    {"lr_plateau_threshold_mode", enum_field<&Recipe::lr_plateau_threshold_mode>, 0, 0, kPlateauModes},
    {"lr_plateau_cooldown", &Recipe::lr_plateau_cooldown, 0, kMaxSteps},
    {"jagged_restart_steps", &Recipe::jagged_restart_steps, 0, kMaxSteps},
    {"jagged_restart_warmup_steps", &Recipe::jagged_restart_warmup_steps, 1, kMaxSteps},
    {"jagged_restart_anneal_steps", &Recipe::jagged_restart_anneal_steps, 1, kMaxSteps},
    {"embedding_lr", &Recipe::embedding_lr, 0, 1e3},
    {"embedding_lr_scale", &Recipe::embedding_lr_scale, 0, 1e6},
    {"lr_groups", &Recipe::lr_groups},
    {"loraplus_lr_ratio", &Recipe::loraplus_lr_ratio, 0, 1e6},
    {"neftune_noise_alpha", &Recipe::neftune_noise_alpha, 0, 1e6},
    {"label_smoothing_factor", &Recipe::label_smoothing_factor, 0, kBelowOne},
    {"z_loss_coef", &Recipe::z_loss_coef, 0, 1e3},
    {"warmup_ratio", &Recipe::warmup_ratio, 0, 1},
    {"warmup_steps", &Recipe::warmup_steps, 0, kMaxSteps},
    {"weight_decay", &Recipe::weight_decay, 0, 1e3},
    {"decay_norm_and_bias", &Recipe::decay_norm_and_bias},
    {"max_grad_norm", &Recipe::max_grad_norm, 0, 1e12},
    {"update_in_backward", &Recipe::update_in_backward},
    {"gradient_noise_steps", &Recipe::gradient_noise_steps, 0, kMaxSteps},
    {"adam_beta1", &Recipe::adam_beta1, 0, kBelowOne},
    {"adam_beta2", &Recipe::adam_beta2, 0, kBelowOne},
    {"adam_epsilon", &Recipe::adam_epsilon, 0, 1},
    {"dtype", enum_field<&Recipe::dtype>, 0, 0, kDtypes},
    {"pure_bf16", &Recipe::pure_bf16},
    {"fp8", &Recipe::fp8},
    {"loss_scale", &Recipe::loss_scale, 0, 1e38},
    {"initial_scale_power", &Recipe::initial_scale_power, 0, 64},
    {"loss_scale_window", &Recipe::loss_scale_window, 1, kMaxSteps},
    {"min_loss_scale", &Recipe::min_loss_scale, kTiny, 1e38},
    {"gradient_checkpointing", enum_field<&Recipe::gradient_checkpointing>, 0, 0, kCheckpointing},
    {"gradient_checkpointing_every", &Recipe::gradient_checkpointing_every, 1, 1e6},
    {"activation_offloading", enum_field<&Recipe::activation_offloading>, 0, 0, kActivationOffloading},
    {"unfrozen_parameters", &Recipe::unfrozen_parameters},
    {"seed", &Recipe::seed, 0, kMaxSeed},
    {"deterministic", &Recipe::deterministic},
    {"router_aux_loss_coef", &Recipe::router_aux_loss_coef, 0, 1e6},
    {"router_z_loss_coef", &Recipe::router_z_loss_coef, 0, 1e6},
};

const Key<LrGroup> kLrGroupKeys[] = {
    {"name", &LrGroup::name},
    {"modules", &LrGroup::modules},
    {"lr", &LrGroup::lr, 0, 1e3},
};

}  // namespace

std::span<const Key<Recipe>> training_keys() { return kKeys; }
std::span<const Key<LrGroup>> lr_group_keys() { return kLrGroupKeys; }

}  // namespace tessera::config
