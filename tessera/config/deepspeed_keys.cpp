// The keys of DeepSpeed's JSON, and of Accelerate's short form of it.
#include "tessera/config/foreign_keys.h"

namespace tessera::config {
namespace {

constexpr std::string_view kNotYet = "not built yet";
constexpr std::string_view kHostMemory =
    "offloading to a drive is not built yet; \"cpu\" is where everything is here";

constexpr ForeignKey kAccelerateDeepSpeedKeys[] = {
    {"zero_stage", Rule::Rename, "zero_stage"},
    {"gradient_clipping", Rule::Rename, "max_grad_norm"},
    {"gradient_accumulation_steps", Rule::Rename, "gradient_accumulation_steps"},
    {"deepspeed_config_file", Rule::Special, "deepspeed"},
    {"offload_optimizer_device", Rule::Refuse, kHostMemory, "cpu"},
    {"offload_param_device", Rule::Refuse, kHostMemory, "cpu"},
    {"offload_optimizer_nvme_path", Rule::Quiet},
    {"offload_param_nvme_path", Rule::Quiet},
    {"zero3_init_flag", Rule::Quiet},
    {"zero3_save_16bit_model", Rule::Quiet},
    {"deepspeed_multinode_launcher", Rule::Ignore},
    {"deepspeed_hostfile", Rule::Ignore},
};

constexpr ForeignKey kDeepSpeedKeys[] = {
    {"zero_optimization", Rule::Enter, "deepspeed.zero_optimization"},
    {"optimizer", Rule::Enter, "deepspeed.optimizer"},
    {"scheduler", Rule::Enter, "deepspeed.scheduler"},
    {"fp16", Rule::Enter, "deepspeed.fp16"},
    {"bf16", Rule::Enter, "deepspeed.bf16"},
    {"bfloat16", Rule::Enter, "deepspeed.bf16"},
    {"tensor_parallel", Rule::Enter, "deepspeed.tensor_parallel"},
    {"train_batch_size", Rule::Rename, "train_batch_size"},
    {"train_micro_batch_size_per_gpu", Rule::Rename, "micro_batch_size"},
    {"gradient_accumulation_steps", Rule::Rename, "gradient_accumulation_steps"},
    {"gradient_clipping", Rule::Rename, "max_grad_norm"},
    {"steps_per_print", Rule::Quiet},
    {"wall_clock_breakdown", Rule::Quiet},
    {"dump_state", Rule::Quiet},
    {"communication_data_type", Rule::Ignore},
    {"prescale_gradients", Rule::Ignore},
    {"gradient_predivide_factor", Rule::Ignore},
    {"sparse_gradients", Rule::Ignore},
    {"zero_allow_untested_optimizer", Rule::Quiet},
    {"zero_force_ds_cpu_optimizer", Rule::Quiet},
    {"data_types", Rule::Ignore},
    {"torch_autocast", Rule::Ignore},
    {"compile", Rule::Quiet},
    {"checkpoint", Rule::Ignore},
    {"data_efficiency", Rule::Refuse, kNotYet},
    {"curriculum_learning", Rule::Refuse, kNotYet},
    {"compression_training", Rule::Refuse, kNotYet},
    {"elasticity", Rule::Refuse, kNotYet},
    {"pipeline", Rule::Enter, "deepspeed.pipeline"},
    {"aio", Rule::Ignore},
    {"activation_checkpointing", Rule::Ignore},
    {"autotuning", Rule::Ignore},
    {"comms_logger", Rule::Quiet},
    {"flops_profiler", Rule::Quiet},
    {"tensorboard", Rule::Quiet},
    {"wandb", Rule::Quiet},
    {"csv_monitor", Rule::Quiet},
    {"comet", Rule::Quiet},
};

constexpr ForeignKey kZeroKeys[] = {
    {"stage", Rule::Rename, "zero_stage"},
    {"offload_optimizer", Rule::Enter, "deepspeed.zero_optimization.offload"},
    {"offload_param", Rule::Enter, "deepspeed.zero_optimization.offload"},
    {"cpu_offload", Rule::Quiet},
    {"cpu_offload_params", Rule::Quiet},
    {"cpu_offload_use_pin_memory", Rule::Quiet},
    {"max_live_parameters", Rule::Quiet},
    {"max_reuse_distance", Rule::Quiet},
    {"prefetch_bucket_size", Rule::Quiet},
    {"param_persistence_threshold", Rule::Quiet},
    {"model_persistence_threshold", Rule::Quiet},
    {"memory_efficient_linear", Rule::Quiet},
    {"module_granularity_threshold", Rule::Quiet},
    {"leaf_module", Rule::Quiet},
    {"use_multi_rank_bucket_allreduce", Rule::Quiet},
    {"use_all_reduce_for_fetch_params", Rule::Quiet},
    {"pipeline_loading_checkpoint", Rule::Quiet},
    {"override_module_apply", Rule::Quiet},
    {"allgather_sequential", Rule::Quiet},
    {"fast_sharding_for_leaf_module", Rule::Quiet},
    {"legacy_stage1", Rule::Quiet},
    {"log_trace_cache_warnings", Rule::Quiet},
    {"overlap_comm", Rule::Quiet},
    {"reduce_scatter", Rule::Quiet},
    {"contiguous_gradients", Rule::Quiet},
    {"allgather_partitions", Rule::Quiet},
    {"allgather_bucket_size", Rule::Quiet},
    {"reduce_bucket_size", Rule::Quiet},
    {"sub_group_size", Rule::Quiet},
    {"round_robin_gradients", Rule::Quiet},
    {"stage3_*", Rule::Quiet},
    {"gather_16bit_weights_on_model_save", Rule::Quiet},
    {"load_from_fp32_weights", Rule::Quiet},
    {"elastic_checkpoint", Rule::Quiet},
    {"ignore_unused_parameters", Rule::Quiet},
    {"zero_hpz_partition_size", Rule::Rename, "zero_hpz_partition_size"},
    {"zero_quantized_weights", Rule::Refuse, "quantised communication is not built yet"},
    {"zero_quantized_nontrainable_weights", Rule::Refuse, "quantised communication is not built yet"},
    {"zero_quantized_gradients", Rule::Refuse, "quantised communication is not built yet"},
    {"mics_shard_size", Rule::Refuse, "not built yet; write dp_shard_size and dp_replicate_size", "-1"},
    {"mics_hierarchical_params_gather", Rule::Quiet},
};

constexpr ForeignKey kOffloadKeys[] = {
    {"device", Rule::Refuse, kHostMemory, "cpu"},
    {"nvme_path", Rule::Quiet},
    {"pin_memory", Rule::Quiet},
    {"ratio", Rule::Quiet},
    {"buffer_count", Rule::Quiet},
    {"buffer_size", Rule::Quiet},
    {"max_in_cpu", Rule::Quiet},
    {"pipeline", Rule::Quiet},
    {"pipeline_read", Rule::Quiet},
    {"pipeline_write", Rule::Quiet},
    {"fast_init", Rule::Quiet},
};

constexpr ForeignKey kDeepSpeedOptimizerKeys[] = {
    {"type", Rule::Map, "optimizer",
     "adamw=adamw adam=adamw sgd=sgd lamb=! onebitadam=! onebitlamb=! zerooneadam=! lion=! adagrad=! "
     "muadam=! "
     "muadamw=! musgd=! muon=!"},
    {"params", Rule::Enter, "deepspeed.optimizer.params"},
    {"legacy_fusion", Rule::Quiet},
};

constexpr ForeignKey kDeepSpeedOptimizerParams[] = {
    {"lr", Rule::Rename, "learning_rate"},
    {"betas", Rule::Special, "betas"},
    {"eps", Rule::Rename, "adam_epsilon"},
    {"weight_decay", Rule::Rename, "weight_decay"},
    {"bias_correction", Rule::Refuse, "Adam without bias correction is not built", "true"},
    {"adam_w_mode", Rule::Map, "optimizer", "true="},
    {"torch_adam", Rule::Quiet},
    {"fused", Rule::Quiet},
    {"momentum", Rule::Refuse, "momentum is not built yet", "0 0.0"},
};

constexpr ForeignKey kDeepSpeedSchedulerKeys[] = {
    {"type", Rule::Map, "lr_scheduler",
     "warmuplr=constant_with_warmup warmupdecaylr=linear warmupcosinelr=cosine lrrangetest=! onecycle=!"},
    {"params", Rule::Enter, "deepspeed.scheduler.params"},
};

constexpr ForeignKey kDeepSpeedSchedulerParams[] = {
    {"warmup_num_steps", Rule::Rename, "warmup_steps"},
    {"warmup_max_lr", Rule::Rename, "learning_rate"},
    {"warmup_min_lr", Rule::Refuse, "warm-up starts at zero", "0 0.0"},
    {"warmup_min_ratio", Rule::Refuse, "warm-up starts at zero", "0 0.0"},
    {"cos_min_ratio", Rule::Rename, "cosine_min_lr_ratio"},
    {"warmup_type", Rule::Refuse, "only a linear warm-up is built", "linear"},
    {"total_num_steps", Rule::Refuse,
     "the schedule spans the whole run; write \"auto\" here and max_steps in the recipe"},
    {"last_batch_iteration", Rule::Quiet},
};

constexpr ForeignKey kDeepSpeedFp16Keys[] = {
    {"enabled", Rule::Map, "dtype", "true=float16 false="},
    {"auto_cast", Rule::Quiet},
    {"loss_scale", Rule::Rename, "loss_scale"},
    {"initial_scale_power", Rule::Rename, "initial_scale_power"},
    {"loss_scale_window", Rule::Rename, "loss_scale_window"},
    {"hysteresis", Rule::Quiet},
    {"min_loss_scale", Rule::Rename, "min_loss_scale"},
    {"consecutive_hysteresis", Rule::Quiet},
    {"fp16_master_weights_and_grads", Rule::Quiet},
};

constexpr ForeignKey kDeepSpeedBf16Keys[] = {
    {"enabled", Rule::Map, "dtype", "true=bfloat16 false="},
    {"immediate_grad_update", Rule::Quiet},
    {"bf16_master_weights_and_grads", Rule::Refuse, "weights in pure bfloat16 are not built yet"},
    {"bf16_optimizer_states", Rule::Refuse, "optimizer states in bfloat16 are not built yet"},
};

constexpr ForeignKey kDeepSpeedTensorParallelKeys[] = {
    {"autotp_size", Rule::Rename, "tensor_parallel_size"},
};

constexpr ForeignKey kDeepSpeedPipelineKeys[] = {
    {"stages", Rule::Rename, "pipeline_parallel_size"},
    {"partition", Rule::Ignore},  // layers are dealt by their work
    {"seed_layers", Rule::Quiet},
    {"activation_checkpoint_interval", Rule::Refuse, "write gradient_checkpointing: true", "0"},
    {"pipe_partitioned", Rule::Quiet},
    {"grad_partitioned", Rule::Quiet},
};

constexpr Section kSections[] = {
    {"deepspeed_config", "", true, kAccelerateDeepSpeedKeys},
    {"deepspeed", "", true, kDeepSpeedKeys},
    {"deepspeed.zero_optimization", "", true, kZeroKeys},
    {"deepspeed.zero_optimization.offload", "", true, kOffloadKeys},
    {"deepspeed.optimizer", "", true, kDeepSpeedOptimizerKeys},
    {"deepspeed.optimizer.params", "", true, kDeepSpeedOptimizerParams},
    {"deepspeed.scheduler", "", true, kDeepSpeedSchedulerKeys},
    {"deepspeed.scheduler.params", "", true, kDeepSpeedSchedulerParams},
    {"deepspeed.fp16", "", true, kDeepSpeedFp16Keys},
    {"deepspeed.bf16", "", true, kDeepSpeedBf16Keys},
    {"deepspeed.tensor_parallel", "", true, kDeepSpeedTensorParallelKeys},
    {"deepspeed.pipeline", "", true, kDeepSpeedPipelineKeys},
};

}  // namespace

std::span<const Section> deepspeed_sections() { return kSections; }

}  // namespace tessera::config
