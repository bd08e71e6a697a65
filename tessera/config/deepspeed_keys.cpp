// The keys of DeepSpeed's JSON, and of Accelerate's short form of it.
#include "tessera/config/foreign_keys.h"

namespace tessera::config {
namespace {

constexpr std::string_view kBuffers =
    "states always pass through buffers, the next ones while one of them is updated";
constexpr std::string_view kAllStates = "all states are offloaded";
constexpr std::string_view kZeroFile = "the space is reserved, and states are zero until they are written";
constexpr std::string_view kOneRing = "one ring, or as many threads as `queue_depth`, moves all requests";
constexpr std::string_view kStateBlocks = "states pass in blocks of 16 MiB";
constexpr std::string_view kInMemory = "parameters are not offloaded to a drive";
constexpr std::string_view kFloat32 = "weights, sums and optimizer states are in float32";
constexpr std::string_view kPlace =
    "layers are divided by their work, and a checkpoint records where to resume";
constexpr std::string_view kScale = "every overflow halves the loss scale";

constexpr ForeignKey kAccelerateDeepSpeedKeys[] = {
    {"zero_stage", Rule::Rename, "zero_stage"},
    {"gradient_clipping", Rule::Rename, "max_grad_norm"},
    {"gradient_accumulation_steps", Rule::Rename, "gradient_accumulation_steps"},
    {"deepspeed_config_file", Rule::Special, "deepspeed", "the path of a DeepSpeed JSON file; see below"},
    {"offload_optimizer_device", Rule::Rename, "offload_optimizer_device"},
    {"offload_param_device", Rule::Rename, "offload_param_device"},
    {"offload_optimizer_nvme_path", Rule::Rename, "offload_optimizer_nvme_path"},
    {"offload_param_nvme_path", Rule::Quiet, kInMemory},
    {"zero3_init_flag", Rule::Quiet, kHow},
    {"zero3_save_16bit_model", Rule::Quiet, kPieces},
    {"deepspeed_multinode_launcher", Rule::Ignore, kHow},
    {"deepspeed_hostfile", Rule::Ignore, kHow},
    {"deepspeed_inclusion_filter", Rule::Ignore, kHow},
    {"deepspeed_exclusion_filter", Rule::Ignore, kHow},
    {"deepspeed_moe_layer_cls_names", Rule::Quiet, kHow},
    {"seq_parallel_communication_data_type", Rule::Ignore, kHow},
};

constexpr ForeignKey kDeepSpeedKeys[] = {
    {"zero_optimization", Rule::Enter, "deepspeed.zero_optimization"},
    {"optimizer", Rule::Enter, "deepspeed.optimizer"},
    {"scheduler", Rule::Special, "deepspeed_scheduler",
     "a map, see `deepspeed.scheduler` below. Keys that it leaves out have DeepSpeed's defaults: 1000 steps "
     "of a logarithmic warm-up, `cos_min_ratio` 0.0001. If the recipe names the corresponding schedule of "
     "Transformers (`linear` for WarmupDecayLR), that one is used, with a warning"},
    {"fp16", Rule::Enter, "deepspeed.fp16"},
    {"bf16", Rule::Enter, "deepspeed.bf16"},
    {"bfloat16", Rule::Enter, "deepspeed.bf16"},
    {"tensor_parallel", Rule::Enter, "deepspeed.tensor_parallel"},
    {"train_batch_size", Rule::Rename, "global_batch_size"},
    {"train_micro_batch_size_per_gpu", Rule::Rename, "micro_batch_size"},
    {"gradient_accumulation_steps", Rule::Rename, "gradient_accumulation_steps"},
    {"gradient_clipping", Rule::Rename, "max_grad_norm"},
    {"steps_per_print", Rule::Quiet, kTold},
    {"wall_clock_breakdown", Rule::Quiet, kTold},
    {"dump_state", Rule::Quiet, kTold},
    {"communication_data_type", Rule::Ignore, kHow},
    {"seq_parallel_communication_data_type", Rule::Ignore, kHow},
    {"prescale_gradients", Rule::Ignore, kHow},
    {"gradient_predivide_factor", Rule::Ignore, kHow},
    {"sparse_gradients", Rule::Ignore, kHow},
    {"zero_allow_untested_optimizer", Rule::Quiet, kHow},
    {"zero_force_ds_cpu_optimizer", Rule::Quiet, kHow},
    {"data_types", Rule::Ignore, kFloat32},
    {"torch_autocast", Rule::Ignore, kFloat32},
    {"compile", Rule::Quiet, kHow},
    {"checkpoint", Rule::Ignore, kPieces},
    {"data_efficiency", Rule::Refuse, kNotYet},
    {"curriculum_learning", Rule::Refuse, kNotYet},
    {"compression_training", Rule::Refuse, kNotYet},
    {"elasticity", Rule::Refuse, kNotYet},
    {"pipeline", Rule::Enter, "deepspeed.pipeline"},
    {"aio", Rule::Enter, "deepspeed.aio"},
    {"activation_checkpointing", Rule::Ignore, kHow},
    {"autotuning", Rule::Ignore, kHow},
    {"sequence_parallel_size", Rule::Rename, "context_parallel_size"},
    {"expert_parallel", Rule::Refuse, "write expert_parallel_size in the recipe"},
    {"hybrid_engine", Rule::Refuse, "generating during training is not supported"},
    {"comms_logger", Rule::Quiet, kTold},
    {"comms_config", Rule::Quiet, kTold},
    {"monitor_config", Rule::Quiet, kTold},
    {"_comment*", Rule::Quiet, "it is a comment"},
    {"_comment", Rule::Quiet, "it is a comment"},
    {"flops_profiler", Rule::Quiet, kTold},
    {"tensorboard", Rule::Quiet, kTold},
    {"wandb", Rule::Special, "deepspeed_wandb",
     "if `enabled` is true: `use_wandb: true`, and `project` and `team` mean `wandb_project` and "
     "`wandb_entity`"},
    {"csv_monitor", Rule::Quiet, kTold},
    {"comet", Rule::Ignore, kNoTracker},
};

constexpr ForeignKey kZeroKeys[] = {
    {"stage", Rule::Rename, "zero_stage"},
    {"offload_optimizer", Rule::Enter, "deepspeed.zero_optimization.offload_optimizer"},
    {"offload_param", Rule::Enter, "deepspeed.zero_optimization.offload_param"},
    {"cpu_offload", Rule::Map, "offload_optimizer_device", "true=cpu false="},
    {"cpu_offload_params", Rule::Map, "offload_param_device", "true=cpu false="},
    {"cpu_offload_use_pin_memory", Rule::Quiet, kBuffers},
    {"max_live_parameters", Rule::Quiet, kHow},
    {"max_reuse_distance", Rule::Quiet, kHow},
    {"prefetch_bucket_size", Rule::Quiet, kHow},
    {"param_persistence_threshold", Rule::Quiet, kHow},
    {"model_persistence_threshold", Rule::Quiet, kHow},
    {"memory_efficient_linear", Rule::Quiet, kHow},
    {"module_granularity_threshold", Rule::Quiet, kHow},
    {"leaf_module", Rule::Quiet, kHow},
    {"use_multi_rank_bucket_allreduce", Rule::Quiet, kHow},
    {"use_all_reduce_for_fetch_params", Rule::Quiet, kHow},
    {"pipeline_loading_checkpoint", Rule::Quiet, kHow},
    {"override_module_apply", Rule::Quiet, kHow},
    {"allgather_sequential", Rule::Quiet, kHow},
    {"fast_sharding_for_leaf_module", Rule::Quiet, kHow},
    {"legacy_stage1", Rule::Quiet, kHow},
    {"log_trace_cache_warnings", Rule::Quiet, kHow},
    {"overlap_comm", Rule::Quiet, kHow},
    {"reduce_scatter", Rule::Quiet, kHow},
    {"contiguous_gradients", Rule::Quiet, kHow},
    {"allgather_partitions", Rule::Quiet, kHow},
    {"allgather_bucket_size", Rule::Quiet, kHow},
    {"reduce_bucket_size", Rule::Quiet, kHow},
    {"sub_group_size", Rule::Quiet, kStateBlocks},
    {"round_robin_gradients", Rule::Quiet, kHow},
    {"stage3_*", Rule::Quiet, kHow},
    {"gather_16bit_weights_on_model_save", Rule::Quiet, kPieces},
    {"load_from_fp32_weights", Rule::Quiet, kFloat32},
    {"elastic_checkpoint", Rule::Quiet, kHow},
    {"ignore_unused_parameters", Rule::Quiet, kHow},
    {"zenflow", Rule::Refuse, "ZenFlow is not supported yet"},
    {"zero_hpz_partition_size", Rule::Rename, "zero_hpz_partition_size"},
    {"zero_quantized_weights", Rule::Rename, "zero_quantized_weights"},
    {"zero_quantized_nontrainable_weights", Rule::Refuse,
     "frozen weights are not stored in codes; zero_quantized_weights sends them in codes of 8 bits"},
    {"zero_quantized_gradients", Rule::Rename, "zero_quantized_gradients"},
    {"mics_shard_size", Rule::Refuse, "not supported yet; write dp_shard_size and dp_replicate_size", "-1"},
    {"mics_hierarchical_params_gather", Rule::Quiet, kHow},
};

constexpr ForeignKey kOffloadOptimizerKeys[] = {
    {"device", Rule::Rename, "offload_optimizer_device"},
    {"nvme_path", Rule::Rename, "offload_optimizer_nvme_path"},
    {"pin_memory", Rule::Quiet, kBuffers},
    {"ratio", Rule::Quiet, kAllStates},
    {"buffer_count", Rule::Rename, "offload_optimizer_buffer_count"},
    {"pipeline", Rule::Quiet, kBuffers},
    {"pipeline_read", Rule::Quiet, kBuffers},
    {"pipeline_write", Rule::Quiet, kBuffers},
    {"fast_init", Rule::Quiet, kZeroFile},
};

constexpr ForeignKey kAioKeys[] = {
    {"block_size", Rule::Rename, "aio_block_size"},
    {"queue_depth", Rule::Rename, "aio_queue_depth"},
    {"thread_count", Rule::Quiet, kOneRing},
    {"intra_op_parallelism", Rule::Quiet, kOneRing},
    {"single_submit", Rule::Quiet, kOneRing},
    {"overlap_events", Rule::Quiet, kOneRing},
    {"use_gds", Rule::Ignore, "blocks pass through memory of the host"},
};

constexpr ForeignKey kOffloadParamKeys[] = {
    {"device", Rule::Rename, "offload_param_device"},
    {"nvme_path", Rule::Quiet, kInMemory},
    {"pin_memory", Rule::Quiet, kHow},
    {"buffer_count", Rule::Quiet, kHow},
    {"buffer_size", Rule::Quiet, kHow},
    {"max_in_cpu", Rule::Quiet, kHow},
};

constexpr ForeignKey kDeepSpeedOptimizerKeys[] = {
    {"type", Rule::Map, "optimizer",
     "adamw=adamw adam=adamw sgd=sgd lamb=lamb onebitadam=! onebitlamb=! zerooneadam=! lion=lion "
     "adagrad=adagrad "
     "muadam=! "
     "muadamw=! musgd=! muon=!"},
    {"params", Rule::Enter, "deepspeed.optimizer.params"},
    {"legacy_fusion", Rule::Quiet, kHow},
};

constexpr std::string_view kCompressed =
    "optimizers that compress what they send are not supported yet; write AdamW";

constexpr ForeignKey kDeepSpeedOptimizerParams[] = {
    {"lr", Rule::Rename, "learning_rate"},
    {"betas", Rule::Special, "betas", "means `adam_beta1` and `adam_beta2`"},
    {"eps", Rule::Rename, "adam_epsilon"},
    {"weight_decay", Rule::Rename, "weight_decay"},
    {"bias_correction", Rule::Refuse, "Adam without bias correction is not supported", "true"},
    {"adam_w_mode", Rule::Map, "optimizer", "true= false=!"},
    {"torch_adam", Rule::Quiet, kHow},
    {"fused", Rule::Quiet, kHow},
    {"momentum", Rule::Special, "optimizer_args.momentum", "sets `optimizer_args.momentum`"},
    {"cuda_aware", Rule::Refuse, kCompressed},
    {"comm_backend_name", Rule::Refuse, kCompressed},
    {"freeze_step", Rule::Refuse, kCompressed},
    {"var_*", Rule::Refuse, kCompressed},
    {"local_step_*", Rule::Refuse, kCompressed},
    {"factor_*", Rule::Refuse, kCompressed},
    {"coeff_beta", Rule::Refuse, kCompressed},
    {"max_coeff", Rule::Special, "optimizer_args.max_coeff", "sets `optimizer_args.max_coeff`"},
    {"min_coeff", Rule::Special, "optimizer_args.min_coeff", "sets `optimizer_args.min_coeff`"},
    {"amsgrad", Rule::Refuse, "AMSGrad is not supported yet"},
    {"max_grad_norm", Rule::Rename, "max_grad_norm"},
};

constexpr ForeignKey kDeepSpeedSchedulerKeys[] = {
    {"type", Rule::Map, "lr_scheduler",
     "warmuplr=warmup_lr warmupdecaylr=warmup_decay_lr warmupcosinelr=warmup_cosine_lr "
     "lrrangetest=lr_range_test "
     "onecycle=!"},
    {"params", Rule::Enter, "deepspeed.scheduler.params"},
};

constexpr ForeignKey kDeepSpeedSchedulerParams[] = {
    {"warmup_num_steps", Rule::Rename, "warmup_steps"},
    {"warmup_max_lr", Rule::Rename, "learning_rate"},
    {"warmup_min_lr", Rule::Refuse, "the warm-up starts at zero", "0 0.0"},
    {"warmup_min_ratio", Rule::Refuse, "the warm-up starts at zero", "0 0.0"},
    {"cos_min_ratio", Rule::Rename, "cosine_min_lr_ratio"},
    {"warmup_type", Rule::Map, "lr_warmup_type", "linear=linear log=log"},
    {"total_num_steps", Rule::Special, "schedule_steps",
     "means `max_steps`, with a warning if the recipe has none: the schedule spans the whole run, and "
     "Transformers accepts no other number"},
    {"lr_range_test_min_lr", Rule::Rename, "learning_rate"},
    {"lr_range_test_step_size", Rule::Rename, "lr_range_test_step_size"},
    {"lr_range_test_step_rate", Rule::Rename, "lr_range_test_step_rate"},
    {"lr_range_test_staircase", Rule::Rename, "lr_range_test_staircase"},
    {"last_batch_iteration", Rule::Quiet, kPlace},
};

constexpr ForeignKey kDeepSpeedFp16Keys[] = {
    {"enabled", Rule::Map, "dtype", "true=float16 false="},
    {"auto_cast", Rule::Quiet, kHow},
    {"loss_scale", Rule::Rename, "loss_scale"},
    {"initial_scale_power", Rule::Rename, "initial_scale_power"},
    {"loss_scale_window", Rule::Rename, "loss_scale_window"},
    {"hysteresis", Rule::Quiet, kScale},
    {"min_loss_scale", Rule::Rename, "min_loss_scale"},
    {"consecutive_hysteresis", Rule::Quiet, kScale},
    {"fp16_master_weights_and_grads", Rule::Quiet, kFloat32},
};

constexpr ForeignKey kDeepSpeedBf16Keys[] = {
    {"enabled", Rule::Map, "dtype", "true=bfloat16 false="},
    {"immediate_grad_update", Rule::Quiet, kHow},
    {"bf16_master_weights_and_grads", Rule::Rename, "pure_bf16"},
    {"bf16_optimizer_states", Rule::Map, "optimizer_state_dtype", "true=bfloat16 false="},
};

constexpr ForeignKey kDeepSpeedTensorParallelKeys[] = {
    {"autotp_size", Rule::Rename, "tensor_parallel_size"},
};

constexpr ForeignKey kDeepSpeedPipelineKeys[] = {
    {"stages", Rule::Rename, "pipeline_parallel_size"},
    {"partition", Rule::Ignore, kPlace},  // blocks are dealt to stages by their work
    {"seed_layers", Rule::Quiet, kHow},
    {"activation_checkpoint_interval", Rule::Refuse, "write gradient_checkpointing: true", "0"},
    {"pipe_partitioned", Rule::Quiet, kHow},
    {"grad_partitioned", Rule::Quiet, kHow},
};

constexpr Section kSections[] = {
    {"deepspeed_config", "", true, kAccelerateDeepSpeedKeys},
    {"deepspeed", "", true, kDeepSpeedKeys},
    {"deepspeed.zero_optimization", "", true, kZeroKeys},
    {"deepspeed.zero_optimization.offload_optimizer", "", true, kOffloadOptimizerKeys},
    {"deepspeed.aio", "", true, kAioKeys},
    {"deepspeed.zero_optimization.offload_param", "", true, kOffloadParamKeys},
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
