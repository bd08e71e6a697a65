#include "tessera/train/run/changed_keys.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "tessera/config/load_recipe.h"

namespace tessera::train {
namespace {

// Keys that change no number of a step, or whose effect a checkpoint notes by itself. A new key that is not
// put here is compared.
constexpr std::string_view kOthers[] = {
    // The model, the tokenizer and the data: the hashes of what they hold are compared.
    "base_model", "tokenizer_config", "revision_of_model", "chat_template_jinja", "lora_model_dir",
    "datasets", "dataset_prepared_path", "on_bad_line", "max_bad_lines",
    // The type and the sequences of a step: a checkpoint notes what they came to.
    "dtype", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    // Memory, rounding and the layout.
    "gradient_checkpointing", "gradient_checkpointing_every", "activation_offloading", "deterministic",
    "device", "dp_replicate_size", "dp_shard_size", "tensor_parallel_size", "async_tensor_parallel",
    "context_parallel_size", "context_parallel_method", "pipeline_parallel_size", "pipeline_schedule",
    "pipeline_stages_per_rank", "pipeline_split", "pipeline_split_by", "pipeline_microbatches",
    "expert_parallel_size", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "offload_optimizer_nvme_path", "offload_optimizer_buffer_count", "aio_block_size", "aio_queue_depth",
    "host_memory_limit", "zero_hpz_partition_size", "ddp_timeout",
    // Output.
    "output_dir", "overwrite_output_dir", "logging_steps", "save_final", "save_dtype", "save_strategy",
    "save_steps", "saves_per_epoch", "save_minutes", "save_total_limit", "save_only_model", "async_save",
    "on_save_error", "resume_from_checkpoint", "auto_resume_from_checkpoints", "allow_data_change",
    "push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy",
    "load_best_model_at_end", "early_stopping_patience", "early_stopping_threshold",
    // Trackers, and guards that only end a run.
    "use_wandb", "wandb_project", "wandb_entity", "wandb_name", "wandb_run_id", "wandb_mode",
    "prometheus_file", "use_mlflow", "mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name",
    "use_otel_metrics", "cluster", "loss_watchdog_threshold", "loss_watchdog_patience", "replica_check_steps",
    "strict_finite", "eval_table_size", "eval_max_new_tokens"};

// Keys of the evaluations, which change the learning rate where it falls on a plateau of their loss.
constexpr std::string_view kOfEvaluation[] = {
    "test_datasets",   "eval_sequence_len", "eval_sample_packing",    "eval_strategy",
    "eval_steps",      "evals_per_epoch",   "metric_for_best_model",  "eval_tasks",
    "eval_tasks_data", "eval_tasks_limit",  "eval_tasks_num_fewshot", "eval_tasks_apply_chat_template"};

std::map<std::string, std::string> values_of(const std::string& recipe) {
  const auto values = config::top_level_values(recipe);
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<ChangedKey> changed_keys(const std::string& before, const std::string& now) {
  auto older = values_of(before);
  older.merge(values_of(config::dump_recipe({})));
  auto newer = values_of(now);
  // A key that is gone is unset.
  for (const auto& entry : older) newer.try_emplace(entry.first);
  const auto schedule = newer.find("lr_scheduler");
  const bool has_plateau = schedule != newer.end() && schedule->second.find("plateau") != std::string::npos;
  std::vector<ChangedKey> changed;
  for (const auto& [name, value] : newer) {
    const bool is_other = std::ranges::find(kOthers, name) != std::end(kOthers) ||
                          (!has_plateau && std::ranges::find(kOfEvaluation, name) != std::end(kOfEvaluation));
    if (!is_other && older[name] != value) changed.push_back({name, older[name], value});
  }
  return changed;
}

}  // namespace tessera::train
