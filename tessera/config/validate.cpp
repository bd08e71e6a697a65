#include "tessera/config/validate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/rules.h"
#include "tessera/config/scalar.h"
#include "tessera/core/nearest_size.h"

namespace tessera::config {
namespace {

// Refuses keys that follow a measurement, which may come out otherwise the next time.
void validate_deterministic(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.deterministic) return;
  const auto refuse = [&](const std::string& key, const std::string& value, const std::string& hint) {
    rules
        .refuse_text("CONFLICT", {key, "deterministic"},
                     "keys 'deterministic' and '" + key + "': " + value + " exclude each other")
        .hint(hint);
  };
  if (recipe.dtype == ComputeType::Auto) refuse("dtype", "auto", "write bfloat16 or float32");
  if (recipe.pipeline_split_by == SplitBasis::Time)
    refuse("pipeline_split_by", "time",
           "a run without 'deterministic' writes the pipeline_split that it has found");
}

void validate_fp8(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.fp8 || recipe.dtype == ComputeType::BFloat16) return;
  rules
      .refuse_text("CONFLICT", {"fp8", "dtype"}, "keys 'fp8' and 'dtype': fp8 is combined only with bfloat16")
      .need("dtype: bfloat16, which fp8: true implies");
}

void validate_pure_bf16(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.pure_bf16) return;
  if (recipe.dtype != ComputeType::BFloat16) {
    rules
        .refuse_text("CONFLICT", {"pure_bf16", "dtype"},
                     "keys 'pure_bf16' and 'dtype': weights in bfloat16 are computed with in bfloat16")
        .need("dtype: bfloat16, which pure_bf16: true implies");
  }
  if (recipe.optimizer == OptimizerKind::ScheduleFreeAdamW) {
    rules
        .refuse_text("CONFLICT", {"pure_bf16", "optimizer"},
                     "keys 'pure_bf16' and 'optimizer': schedule_free_adamw moves weights between two points "
                     "at each evaluation, which bfloat16 would round each time")
        .hint("leave pure_bf16 out, or use another optimizer");
  }
}

// Refuses what needs all gradients of a step at once.
void validate_backward_updates(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.update_in_backward) return;
  const auto refuse = [&](const char* key, const std::string& why) -> Error& {
    return rules.refuse_text("CONFLICT", {"update_in_backward", key},
                             "keys 'update_in_backward' and '" + std::string(key) + "': " + why);
  };
  if (recipe.max_grad_norm > 0.0) {
    refuse("max_grad_norm", "the norm is known when all gradients are, and by then they are gone")
        .got(format_number(recipe.max_grad_norm))
        .need("max_grad_norm: 0")
        .hint("an optimizer that limits its own steps, such as adafactor or stable_adamw, needs no clipping");
  }
  if (recipe.gradient_noise_steps > 0)
    refuse("gradient_noise_steps", "the noise is measured by two parts of a step's gradient");
  if (recipe.gradient_accumulation_steps > 1) {
    refuse("gradient_accumulation_steps", "sums over micro-batches would live to the end of the step")
        .got(std::to_string(recipe.gradient_accumulation_steps))
        .need("1, with a larger micro_batch_size");
  }
  if (recipe.pipeline_parallel_size > 1)
    refuse("pipeline_parallel_size", "the gradients of a stage are sums over the micro-batches in flight");
  if (recipe.dtype == ComputeType::Float16)
    refuse("dtype", "a loss scale makes no update where any gradient overflows").need("bfloat16 or float32");
  if (recipe.spike_action == SpikeAction::Skip || recipe.spike_action == SpikeAction::Rollback)
    refuse("spike_action", "a step's norm decides about updates that were made before").need("off or warn");
  if (recipe.loss_watchdog_threshold > 0.0)
    refuse("loss_watchdog_threshold", "the watchdog decides before the update");
}

void validate_memory_limit(Rules& rules) {
  const std::string& limit = rules.recipe().host_memory_limit;
  if (limit.empty() || parse_bytes(limit)) return;
  rules.refuse("RANGE", {"host_memory_limit"}, "no size").got(limit).need("a size such as 6GB or 512MiB");
}

void validate_quantization(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.load_in_4bit) {
    const Recipe defaults;
    if (recipe.bnb_4bit_quant_type != defaults.bnb_4bit_quant_type)
      rules.warn_idle("bnb_4bit_quant_type", "without 'load_in_4bit'");
  }
  if (!recipe.quantizes()) {
    if (!recipe.llm_int8_skip_modules.empty())
      rules.warn_idle("llm_int8_skip_modules", "without 'load_in_4bit' or 'load_in_8bit'");
    if (recipe.quantize_moe_experts)
      rules.warn_idle("quantize_moe_experts", "without 'load_in_4bit' or 'load_in_8bit'");
    return;
  }
  const char* const key = recipe.load_in_4bit ? "load_in_4bit" : "load_in_8bit";
  if (recipe.load_in_4bit && recipe.load_in_8bit) {
    rules.refuse_text("CONFLICT", {"load_in_8bit", "load_in_4bit"},
                      "keys 'load_in_4bit' and 'load_in_8bit' exclude each other");
  }
  if (recipe.adapter == AdapterKind::None) {
    rules.refuse("CONFLICT", {key}, "quantised weights cannot be trained themselves")
        .need("adapter: qlora or adapter: lora")
        .hint("leave it out to train all weights");
  }
  if (recipe.fp8) {
    rules.refuse_text("CONFLICT", {"fp8", key},
                      std::string("keys 'fp8' and '") + key +
                          "' exclude each other: both say how the layers' "
                          "weights are multiplied");
  }
}

// Checks a key that takes a share below 1, or a whole number of `unit` from 1 on.
void validate_share(Rules& rules, const std::string& key, double value, const std::string& unit) {
  if (value < 1.0 || value == std::floor(value)) return;
  rules.refuse("RANGE", {key}, "neither a share nor a whole number of " + unit)
      .got(std::to_string(value))
      .need("a number below 1, or a whole number of " + unit);
}

// Checks the keys of the tasks that an evaluation scores.
void validate_eval_tasks(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const std::pair<const char*, bool> companions[] = {
      {"eval_tasks_data", !recipe.eval_tasks_data.empty()},
      {"eval_tasks_limit", recipe.eval_tasks_limit > 0.0},
      {"eval_tasks_num_fewshot", recipe.eval_tasks_num_fewshot.has_value()},
      {"eval_tasks_apply_chat_template", recipe.eval_tasks_apply_chat_template}};
  if (recipe.eval_tasks.empty()) {
    for (const auto& [key, is_given] : companions) {
      if (is_given) rules.warn_idle(key, "without 'eval_tasks'");
    }
    return;
  }
  if (recipe.eval_strategy == Cadence::No) rules.warn_idle("eval_tasks", "with 'eval_strategy: no'");
  validate_share(rules, "eval_tasks_limit", recipe.eval_tasks_limit, "documents");
  if (recipe.task == Task::CausalLm) return;
  rules
      .refuse("CONFLICT", {"eval_tasks", "task"},
              "tasks are scored by the likelihood of a text after another, which only a language model tells")
      .got("another task")
      .need("task: causal_lm");
}

// Checks the keys of the samples that an evaluation makes.
void validate_samples(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.eval_table_size == 0) {
    if (recipe.eval_max_new_tokens != EvaluationConfig().eval_max_new_tokens)
      rules.warn_idle("eval_max_new_tokens", "without 'eval_table_size'");
    return;
  }
  if (recipe.val_set_size == 0.0 && recipe.test_datasets.empty())
    return rules.warn_idle("eval_table_size", "without 'val_set_size' or 'test_datasets'");
  if (recipe.eval_strategy == Cadence::No)
    return rules.warn_idle("eval_table_size", "with 'eval_strategy: no'");
  if (recipe.task != Task::CausalLm && recipe.task != Task::Seq2Seq) {
    rules.refuse("CONFLICT", {"eval_table_size", "task"}, "only a language model continues texts")
        .got("another task")
        .need("task: causal_lm or seq2seq");
  }
}

// Checks the keys that read the losses of evaluations.
void validate_evaluation_readers(Rules& rules, bool has_evaluation) {
  const Recipe& recipe = rules.recipe();
  const std::pair<const char*, bool> readers[] = {
      {"early_stopping_patience", recipe.early_stopping_patience > 0},
      {"load_best_model_at_end", recipe.load_best_model_at_end},
      {"save_strategy", recipe.save_strategy == Cadence::Best && !recipe.load_best_model_at_end},
      {"lr_scheduler", recipe.lr_scheduler == ScheduleKind::ReduceOnPlateau}};
  const bool has_reader = std::ranges::any_of(readers, [](const auto& reader) { return reader.second; });
  if (recipe.early_stopping_patience == 0 && recipe.early_stopping_threshold > 0.0)
    rules.warn_idle("early_stopping_threshold", "without 'early_stopping_patience'");
  const std::string& metric = recipe.metric_for_best_model;
  if (!has_reader && !metric.empty())
    rules.warn_idle("metric_for_best_model",
                    "without 'load_best_model_at_end', 'save_strategy: best', 'early_stopping_patience' or "
                    "'lr_scheduler: reduce_lr_on_plateau'");
  const bool is_loss =
      metric.empty() || metric == "loss" || (metric.starts_with("eval_") && metric.ends_with("loss"));
  // The labels of a classifier decide which metrics it has, and the files of tasks which ones they have.
  if (!is_loss && !has_classifier(recipe.task) && recipe.eval_tasks.empty()) {
    rules
        .refuse("UNSUPPORTED", {"metric_for_best_model"},
                "evaluations of language models measure only losses, unless 'eval_tasks' names tasks")
        .got(metric)
        .need("eval_loss, or eval_<name>_loss of one of several datasets");
  }
  if (recipe.load_best_model_at_end && recipe.save_strategy == Cadence::No) {
    rules
        .refuse_text("CONFLICT", {"load_best_model_at_end", "save_strategy"},
                     "keys 'load_best_model_at_end' and 'save_strategy: no' exclude each other")
        .hint("save_strategy: best saves the checkpoint that it needs");
  }
  if (has_evaluation && recipe.eval_strategy != Cadence::No) return;
  for (const auto& [key, is_on] : readers) {
    if (!is_on) continue;
    rules
        .refuse("CONFLICT", {key, "val_set_size", "test_datasets", "eval_tasks", "eval_strategy"},
                "this run has no evaluation")
        .need("val_set_size, test_datasets or eval_tasks, and an eval_strategy other than no");
  }
}

// Refuses an MLflow tracker on another machine: runs are sent to no tracker over a network.
void validate_trackers(Rules& rules) {
  const std::string& uri = rules.recipe().mlflow_tracking_uri;
  const size_t scheme = uri.find(':');
  const bool is_path = scheme == std::string::npos || uri.starts_with("file:/") || uri.find('/') < scheme;
  if (is_path) return;
  rules.refuse("UNSUPPORTED", {"mlflow_tracking_uri"}, "runs are not sent to a tracking server")
      .got(uri)
      .need("a folder, such as ./mlruns or file:///data/mlruns")
      .hint("`mlflow server --backend-store-uri FOLDER` shows the runs in that folder");
}

void validate_pipeline(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.pipeline_schedule == PipelineKind::OneFOneB && recipe.pipeline_stages_per_rank > 1) {
    rules.refuse("CONFLICT", {"pipeline_stages_per_rank", "pipeline_schedule"}, "1f1b has one stage per rank")
        .got(std::to_string(recipe.pipeline_stages_per_rank))
        .hint("pipeline_schedule: interleaved");
  }
  if (!recipe.pipeline_split.empty() && recipe.pipeline_parallel_size == 1) {
    rules.refuse("CONFLICT", {"pipeline_split", "pipeline_parallel_size"}, "a single rank holds all layers")
        .got("pipeline_parallel_size 1")
        .hint("pipeline_parallel_size: " + std::to_string(recipe.pipeline_split.size()));
  }
  if (!recipe.pipeline_split.empty() && recipe.pipeline_split_by == SplitBasis::Time) {
    rules
        .refuse_text("CONFLICT", {"pipeline_split_by", "pipeline_split"},
                     "keys 'pipeline_split' and 'pipeline_split_by': time exclude each other")
        .hint("leave out one of them");
  }
  const int64_t parts = recipe.pipeline_microbatches;
  const int64_t rows = recipe.micro_batch_size * recipe.gradient_accumulation_steps;
  // with_accumulation() checks what global_batch_size comes to.
  if (parts == 0 || rows % parts == 0 || recipe.global_batch_size > 0) return;
  const int64_t below = nearest_sizes(parts, rows, [&](int64_t size) { return rows % size == 0; }).front();
  rules
      .refuse("RANGE", {"pipeline_microbatches", "micro_batch_size", "gradient_accumulation_steps"},
              "the sequences of a step cannot be divided into this many")
      .got(std::to_string(parts) + " and micro_batch_size " + std::to_string(recipe.micro_batch_size) +
           " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) + " = " +
           std::to_string(rows))
      .need("a divisor of " + std::to_string(rows))
      .hint("pipeline_microbatches: " + std::to_string(below));
}

void validate_saving(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.auto_resume_from_checkpoints && !recipe.saves_checkpoints()) {
    rules.warn(
        "auto_resume_from_checkpoints",
        "this run saves no checkpoint to resume from; write save_steps, saves_per_epoch or save_strategy");
  }
  const bool rolls_back = recipe.spike_action == SpikeAction::Rollback;
  const char* const reader = rolls_back                            ? "spike_action: rollback"
                             : recipe.auto_resume_from_checkpoints ? "auto_resume_from_checkpoints"
                                                                   : nullptr;
  if (recipe.save_only_model && reader != nullptr) {
    rules.refuse("CONFLICT", {"save_only_model"}, "a run cannot resume from such checkpoints")
        .got("true, together with " + std::string(reader))
        .hint("leave it out; `tessera convert` turns any checkpoint into a model folder");
  }
  if (rolls_back && !recipe.saves_checkpoints()) {
    rules.warn(
        "spike_action",
        "this run saves no checkpoint to roll back to; write save_steps, saves_per_epoch or save_strategy");
  }
}

// Warns of keys that would save memory and do not.
void warn_of_idle_memory_keys(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.gradient_checkpointing_every > 1 && recipe.gradient_checkpointing != Checkpointing::Block)
    rules.warn_idle("gradient_checkpointing_every", "without 'gradient_checkpointing: true'");
  if (recipe.offload_param_device != OffloadDevice::None && recipe.zero_stage != ZeroStage::Zero3) {
    rules.warn_text("offload_param_device",
                    "saves less memory without 'zero_stage: 3': gathered parameters stay on the device until "
                    "the end of the step");
  }
}

}  // namespace

void validate(const Recipe& recipe, Problems& problems) {
  Rules rules(recipe, problems);
  validate_share(rules, "val_set_size", recipe.val_set_size, "rows");
  validate_share(rules, "warmup_steps", recipe.warmup_steps.value_or(0.0), "steps");
  validate_share(rules, "logging_steps", recipe.logging_steps, "steps");
  validate_share(rules, "eval_steps", recipe.eval_steps, "steps");
  validate_share(rules, "save_steps", recipe.save_steps, "steps");
  validate_saving(rules);
  if (recipe.dp_shard_size == 0) {
    rules.refuse("RANGE", {"dp_shard_size"}, "out of range")
        .got("0")
        .need("-1 (all remaining ranks) or at least 1");
  }
  warn_of_idle_memory_keys(rules);
  if (recipe.lr_scaling != LrScaling::None && recipe.base_batch_size == 0) {
    rules
        .refuse_text("CONFLICT", {"lr_scaling", "base_batch_size"},
                     "key 'lr_scaling' needs 'base_batch_size'")
        .need("the number of sequences per step for which learning_rate was chosen");
  }
  if (recipe.lr_scaling == LrScaling::None && recipe.base_batch_size > 0)
    rules.warn_idle("base_batch_size", "without 'lr_scaling: linear' or 'sqrt'");
  const bool has_evaluation =
      recipe.val_set_size > 0.0 || !recipe.test_datasets.empty() || !recipe.eval_tasks.empty();
  if (!has_evaluation && recipe.eval_strategy == Cadence::Steps) {
    const std::string key = recipe.eval_steps > 0.0        ? "eval_steps"
                            : recipe.evals_per_epoch > 0.0 ? "evals_per_epoch"
                                                           : "eval_strategy";
    rules.warn_idle(key, "without 'val_set_size', 'test_datasets' or 'eval_tasks'");
  }
  if (recipe.min_sample_len > recipe.sequence_len) {
    const std::string key = recipe.first_given({"min_sample_len", "sequence_len"});
    rules
        .refuse_text("CONFLICT", {key, "min_sample_len", "sequence_len"},
                     "keys 'min_sample_len' and 'sequence_len': every row would be dropped")
        .got(std::to_string(recipe.min_sample_len) + " and " + std::to_string(recipe.sequence_len));
  }
  validate_learning_rates(rules);
  validate_optimizer(rules);
  validate_eval_tasks(rules);
  validate_samples(rules);
  validate_evaluation_readers(rules, has_evaluation);
  validate_trackers(rules);
  validate_upload(rules);
  validate_data(rules);
  validate_task(rules);
  validate_adapter(rules);
  validate_quantization(rules);
  validate_pipeline(rules);
  validate_deterministic(rules);
  validate_fp8(rules);
  validate_pure_bf16(rules);
  validate_backward_updates(rules);
  validate_memory_limit(rules);
}

}  // namespace tessera::config
