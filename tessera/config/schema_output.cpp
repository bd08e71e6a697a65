#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kSaveTypes[] = {
    {"auto", as_int(SaveType::OfBase)},   {"float32", as_int(SaveType::Float32)},
    {"fp32", as_int(SaveType::Float32)},  {"bfloat16", as_int(SaveType::BFloat16)},
    {"bf16", as_int(SaveType::BFloat16)}, {"float16", as_int(SaveType::Float16)},
    {"fp16", as_int(SaveType::Float16)},
};
constexpr std::string_view kAtTheEnd = "the result alone is uploaded, at the end of the run";
constexpr Choice kHubStrategies[] = {
    {"end", as_int(HubStrategy::End)},
    {"every_save", as_int(HubStrategy::End), kAtTheEnd},
    {"checkpoint", as_int(HubStrategy::End), kAtTheEnd},
    {"all_checkpoints", as_int(HubStrategy::End), kAtTheEnd},
};
constexpr Choice kCadences[] = {
    {"epoch", as_int(Cadence::Epoch)},
    {"steps", as_int(Cadence::Steps)},
    {"no", as_int(Cadence::No)},
    {"false", as_int(Cadence::No)},
};
constexpr Choice kSaveCadences[] = {
    {"epoch", as_int(Cadence::Epoch)}, {"steps", as_int(Cadence::Steps)}, {"no", as_int(Cadence::No)},
    {"false", as_int(Cadence::No)},    {"best", as_int(Cadence::Best)},
};
constexpr Choice kSaveErrorActions[] = {
    {"stop", as_int(SaveErrorAction::Stop)},
    {"continue", as_int(SaveErrorAction::Continue)},
};
constexpr Choice kSpikeActions[] = {
    {"warn", as_int(SpikeAction::Warn)},         {"skip", as_int(SpikeAction::Skip)},
    {"rollback", as_int(SpikeAction::Rollback)}, {"off", as_int(SpikeAction::Off)},
    {"false", as_int(SpikeAction::Off)},
};

const Key<Recipe> kKeys[] = {
    // Output
    {"output_dir", &Recipe::output_dir},
    {"logging_steps", &Recipe::logging_steps, kTiny, kMaxSteps},
    {"eval_strategy", enum_field<&Recipe::eval_strategy>, 0, 0, kCadences},
    {"eval_steps", &Recipe::eval_steps, 0, kMaxSteps},
    {"evals_per_epoch", &Recipe::evals_per_epoch, 0, 1e6},
    {"early_stopping_patience", &Recipe::early_stopping_patience, 0, kMaxSteps},
    {"early_stopping_threshold", &Recipe::early_stopping_threshold, 0, 1e12},
    {"load_best_model_at_end", &Recipe::load_best_model_at_end},
    {"metric_for_best_model", &Recipe::metric_for_best_model},
    {"eval_tasks", &Recipe::eval_tasks},
    {"eval_tasks_data", &Recipe::eval_tasks_data},
    {"eval_tasks_limit", &Recipe::eval_tasks_limit, 0, 1e12},
    {"eval_tasks_num_fewshot", &Recipe::eval_tasks_num_fewshot, 0, 1000},
    {"eval_tasks_apply_chat_template", &Recipe::eval_tasks_apply_chat_template},
    {"eval_table_size", &Recipe::eval_table_size, 0, 1000},
    {"eval_max_new_tokens", &Recipe::eval_max_new_tokens, 1, 1e6},
    {"save_final", &Recipe::save_final},
    {"save_dtype", enum_field<&Recipe::save_dtype>, 0, 0, kSaveTypes},
    {"save_strategy", enum_field<&Recipe::save_strategy>, 0, 0, kSaveCadences},
    {"save_steps", &Recipe::save_steps, 0, kMaxSteps},
    {"saves_per_epoch", &Recipe::saves_per_epoch, 0, 1e6},
    {"save_minutes", &Recipe::save_minutes, 0, 1e6},
    {"save_total_limit", &Recipe::save_total_limit, 1, 1e6},
    {"resume_from_checkpoint", &Recipe::resume_from_checkpoint},
    {"auto_resume_from_checkpoints", &Recipe::auto_resume_from_checkpoints},
    {"async_save", &Recipe::async_save},
    {"on_save_error", enum_field<&Recipe::on_save_error>, 0, 0, kSaveErrorActions},
    {"save_only_model", &Recipe::save_only_model},
    {"allow_data_change", &Recipe::allow_data_change},
    {"overwrite_output_dir", &Recipe::overwrite_output_dir},
    // Trackers
    {"use_wandb", &Recipe::use_wandb},
    {"wandb_project", &Recipe::wandb_project},
    {"wandb_entity", &Recipe::wandb_entity},
    {"wandb_name", &Recipe::wandb_name},
    {"wandb_run_id", &Recipe::wandb_run_id},
    {"wandb_mode", &Recipe::wandb_mode},
    {"prometheus_file", &Recipe::prometheus_file},
    {"use_mlflow", &Recipe::use_mlflow},
    {"mlflow_tracking_uri", &Recipe::mlflow_tracking_uri},
    {"mlflow_experiment_name", &Recipe::mlflow_experiment_name},
    {"mlflow_run_name", &Recipe::mlflow_run_name},
    {"use_otel_metrics", &Recipe::use_otel_metrics},
    {"cluster", &Recipe::cluster},
    // Upload
    {"hub_model_id", &Recipe::hub_model_id},
    {"push_to_hub", &Recipe::push_to_hub},
    {"hub_private_repo", &Recipe::hub_private_repo},
    {"hub_revision", &Recipe::hub_revision},
    {"hub_strategy", enum_field<&Recipe::hub_strategy>, 0, 0, kHubStrategies},
    // Guards
    {"loss_watchdog_threshold", &Recipe::loss_watchdog_threshold, 0, 1e12},
    {"loss_watchdog_patience", &Recipe::loss_watchdog_patience, 1, kMaxSteps},
    {"spike_action", enum_field<&Recipe::spike_action>, 0, 0, kSpikeActions},
    {"spike_threshold", &Recipe::spike_threshold, 1, 1e6},
    {"replica_check_steps", &Recipe::replica_check_steps, 0, kMaxSteps},
    {"strict_finite", &Recipe::strict_finite},
};

}  // namespace

std::span<const Key<Recipe>> output_keys() { return kKeys; }

}  // namespace tessera::config
