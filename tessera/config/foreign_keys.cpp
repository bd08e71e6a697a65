#include "tessera/config/foreign_keys.h"

#include "tessera/config/optimizer_arguments.h"
#include "tessera/core/error.h"

namespace tessera::config {
namespace {

constexpr std::string_view kStages =
    "full_shard=3 shard_grad_op=2 no_shard=0 true=3 false=2 1=3 2=2 3=0 auto_wrap= offload= "
    "hybrid_shard=! hybrid_shard_zero2=! _hybrid_shard_zero2=!";
constexpr std::string_view kPreference =
    "preference and reinforcement objectives are not supported yet; only supervised training is";
constexpr std::string_view kReward =
    "models that rate the steps of an answer are not supported yet; reward_model learns from pairs of "
    "answers";
constexpr std::string_view kQuantised =
    "quantised weights are not supported yet; base weights stay in 16 or 32 bits, so leave it out";
constexpr std::string_view kDequantized =
    "no effect if the latter has `dequantize: true`, which asks for 16-bit weights; otherwise refused";
constexpr std::string_view kMultimodal = "images and audio are not supported yet; only text is";
constexpr std::string_view kEditConfig = "not supported yet; edit the model folder's config.json";

// Reasons for keys that change no result.
constexpr std::string_view kCompile = "there is nothing to compile: the kernels are native code";
constexpr std::string_view kMemory = "the layout of the ranks decides where weights and activations are";
constexpr std::string_view kOfTracker = "runs write the recipe and the metrics into files";
constexpr std::string_view kLauncher = "--nproc, mpirun or Slurm sets the number of ranks";
constexpr std::string_view kFolder = "the files of the model folder decide";
constexpr std::string_view kPrepare = "all ranks prepare rows, and training uses all rows";
constexpr std::string_view kPack = "rows are packed first-fit decreasing, 100,000 at a time";
constexpr std::string_view kNoPadding = "there is no padding, and each token counts once";
constexpr std::string_view kOtherVerb =
    "training evaluates losses, eval_tasks and eval_table_size; see tessera generate, chat and merge";
constexpr std::string_view kComputeType = "dtype sets the type in which layers compute";
constexpr std::string_view kStorage = "codes are stored as bytes";
constexpr std::string_view kOfRefused = "belongs to a key that is refused";
constexpr std::string_view kInternal = "set by Axolotl for itself";
constexpr std::string_view kFloat32 = "weights, norms, sums and optimizer states are in float32";
constexpr std::string_view kFp8Gather =
    "parameters are gathered in bfloat16, and scales always belong to the whole weight";
constexpr std::string_view kProfile = "see the environment variables of docs/profiling.md";
constexpr std::string_view kOneCycle = "adam_beta1 stays constant";

constexpr ForeignKey kTopKeys[] = {
    // Sections, and other spellings of native keys.
    {"fsdp_config", Rule::Enter, "fsdp_config"},
    {"parallelism_config", Rule::Enter, "parallelism_config"},
    {"deepspeed", Rule::Special, "deepspeed",
     "the path of a DeepSpeed JSON file, or the same as a map; see below"},
    {"deepspeed_config", Rule::Enter, "deepspeed_config"},
    {"gradient_checkpointing_kwargs", Rule::Enter, "gradient_checkpointing_kwargs"},
    {"fsdp", Rule::Map, "zero_stage", kStages},
    {"fsdp_version", Rule::Quiet, kLauncher},
    {"fsdp_sharding_strategy", Rule::Map, "zero_stage", kStages},
    {"fsdp_reshard_after_forward", Rule::Map, "zero_stage", kStages},
    {"fsdp_state_dict_type", Rule::Quiet, kPieces},
    {"fsdp_final_state_dict_type", Rule::Quiet, kPieces},
    {"fsdp_*", Rule::Ignore, kHow},
    {"batch_size", Rule::Special, "batch_size", "`gradient_accumulation_steps` = this / `micro_batch_size`"},
    {"train_batch_size", Rule::Rename, "global_batch_size"},
    {"bf16", Rule::Map, "dtype", "true=bfloat16 auto=auto full=bfloat16 false="},
    {"fp16", Rule::Map, "dtype", "true=float16 false="},
    {"mixed_precision", Rule::Map, "dtype", "bf16=bfloat16 no= fp16=float16 fp8=fp8"},
    {"evaluation_strategy", Rule::Rename, "eval_strategy"},
    {"eval_table_max_new_tokens", Rule::Rename, "eval_max_new_tokens"},
    {"reinit_weights", Rule::Rename, "random_init"},
    {"float32", Rule::Map, "dtype", "true=float32 false="},
    {"model_type", Rule::Special, "model_type",
     "a name that ends in ForCausalLM has no effect, one that ends in ForSequenceClassification sets "
     "`task: classification` unless `reward_model` is on, one in ForTokenClassification `task: "
     "token_classification`, one that ends in ForSeq2SeqLM or T5ForConditionalGeneration sets `task: "
     "seq2seq`, one that ends in ForMaskedLM sets `task: masked_lm`; other kinds of models are refused"},
    {"plugins", Rule::Special, "plugins",
     "Liger, CutCrossEntropy, Kernels and ExpertParallel change no result; SwanLab and LMEval have no "
     "effect; others are refused"},
    {"gradient_clipping", Rule::Rename, "max_grad_norm"},
    {"provider", Rule::Refuse, "this file configures a cloud service for Axolotl; it is not a recipe"},
    {"distributed_type", Rule::Map, "zero_stage",
     "no= fsdp= deepspeed= multi_gpu=0 multi_cpu=0 megatron_lm=! multi_xpu=! multi_npu=! multi_mlu=! tpu=! "
     "xla=! "
     "tp=!"},
    // Keys that would change results.
    {"float16", Rule::Refuse, "weights in pure float16 are not supported yet; write fp16: true"},
    {"bfloat16", Rule::Rename, "pure_bf16"},
    {"fp8_enable_fsdp_float8_all_gather", Rule::Ignore, kFp8Gather},
    {"fp8_*", Rule::Refuse, kNotYet},
    {"gptq", Rule::Quiet, kFolder},
    {"gptq_*", Rule::Quiet, kFolder},
    {"bnb_4bit_compute_dtype", Rule::Quiet, kComputeType},
    {"bnb_4bit_quant_storage", Rule::Quiet, kStorage},
    {"bnb_config_kwargs", Rule::Enter, "bnb_config_kwargs"},
    {"qat", Rule::Refuse, "quantisation-aware training is not supported yet"},
    {"quantization", Rule::Refuse, kQuantised},
    {"llmcompressor", Rule::Refuse, "compressed training is not supported yet"},
    {"nonexpert_quantization", Rule::Refuse, kQuantised},
    {"model_quantization_config", Rule::Special, "dequantized", kDequantized},
    {"model_quantization_config_kwargs", Rule::Special, "dequantized", kDequantized},
    {"use_onebitllms", Rule::Refuse, kQuantised},
    {"dsv4_fp4_*", Rule::Refuse, kQuantised},
    {"dsv4_fp8_*", Rule::Refuse, kQuantised},
    {"gemma4_fp8_nonexpert", Rule::Refuse, kQuantised},
    {"gemma4_nf4_nonexpert", Rule::Refuse, kQuantised},
    {"nvfp4_*", Rule::Refuse, kQuantised},
    // Models other than text in, text out.
    {"processor_type", Rule::Refuse, kMultimodal},
    {"processor_kwargs", Rule::Refuse, kMultimodal},
    {"freeze_mm_modules", Rule::Quiet, "models for images or audio are not supported"},
    {"image_size", Rule::Refuse, kMultimodal},
    {"image_resize_algorithm", Rule::Refuse, kMultimodal},
    {"role_boundaries", Rule::Refuse, kMultimodal},
    {"diffusion", Rule::Refuse, "diffusion language models are not supported yet"},
    {"tokenizer_use_mistral_common", Rule::Quiet, "tekken.json is read where there is no tokenizer.json"},
    {"sequence_parallel_degree", Rule::Rename, "context_parallel_size"},
    {"pipeline_parallel_degree", Rule::Hint, "pipeline_parallel_size"},
    {"pipeline_parallel_schedule", Rule::Hint, "pipeline_schedule"},
    {"virtual_pipeline_model_parallel_size", Rule::Hint, "pipeline_stages_per_rank"},
    {"noisy_embedding_alpha", Rule::Rename, "neftune_noise_alpha"},
    {"lora_dora", Rule::Rename, "peft_use_dora"},
    {"peft", Rule::Enter, "peft"},
    {"lora_fan_in_fan_out", Rule::Quiet, kFolder},  // the model's files say it
    {"loraplus_lr_embedding", Rule::Refuse, "adapters on embeddings are not supported yet", "1e-6 0.000001"},
    {"relora_steps", Rule::Rename, "jagged_restart_steps"},
    {"relora_warmup_steps", Rule::Rename, "jagged_restart_warmup_steps"},
    {"relora_anneal_steps", Rule::Rename, "jagged_restart_anneal_steps"},
    {"relora_prune_method", Rule::Refuse, "states are pruned by their magnitude alone", "magnitude"},
    {"relora_cpu_offload", Rule::Quiet, "a restart needs memory for one weight at a time"},
    {"lisa_*", Rule::Refuse, "training some layers at a time is not supported yet"},
    {"mora", Rule::Refuse, "MoRA is not supported yet; write adapter: lora"},
    {"spectrum_*", Rule::Refuse, "selecting layers by their spectrum is not supported yet"},
    {"grokfast_*", Rule::Refuse, "filtering gradients over steps is not supported yet"},
    {"dense_mixer", Rule::Refuse, "computing all experts for the routers' gradients is not supported yet"},
    {"hatchery", Rule::Refuse, "training on a remote service is not supported"},
    {"trainer_cls", Rule::Refuse, "custom trainers (Python classes) cannot be loaded"},
    {"peft_layer_replication", Rule::Refuse, kNotYet},
    {"peft_ensure_weight_tying", Rule::Refuse, "adapters on tied embeddings are not supported yet"},
    {"optim_args", Rule::Special, "optim_args", "a map, or a text `key=value, ...`; see `optim_args` below"},
    {"adam_beta3", Rule::Special, "optimizer_args.adam_beta3", "sets `optimizer_args.adam_beta3`"},
    {"adam_epsilon2", Rule::Special, "optimizer_args.adam_epsilon2", "sets `optimizer_args.adam_epsilon2`"},
    {"lr_scheduler_kwargs", Rule::Enter, "lr_scheduler_kwargs"},
    {"use_eaft", Rule::Refuse, "weighting the loss by entropy is not supported yet"},
    {"use_pose", Rule::Refuse, "positions with gaps (PoSE) are not supported yet"},
    {"scaling_softmax", Rule::Refuse, "scaled softmax attention is not supported yet"},
    {"fix_untrained_tokens", Rule::Refuse, "changing untrained embeddings is not supported yet"},
    {"auto_find_batch_size", Rule::Refuse, kNotYet},
    {"log_sweep_min_lr", Rule::Refuse, kNotYet},
    {"log_sweep_max_lr", Rule::Refuse, kNotYet},
    {"curriculum_sampling", Rule::Map, "shuffle_merged_datasets", "true=false false="},
    {"pretrain_multipack_buffer_size", Rule::Rename, "streaming_multipack_buffer_size"},
    {"pretraining_sample_concatenation", Rule::Map, "streaming", "true= false=!"},
    {"max_packed_sequence_len", Rule::Refuse, "write sequence_len and sample_packing: true"},
    {"pretraining_dataset", Rule::Special, "pretraining",
     "means `datasets` with `type: pretrain`, and `streaming: true`"},
    {"z_loss", Rule::Rename, "z_loss_coef"},
    {"z_loss_coeff", Rule::Rename, "z_loss_coef"},
    {"z_loss_coefficient", Rule::Rename, "z_loss_coef"},
    {"z_loss_multiplier", Rule::Rename, "z_loss_coef"},
    {"z_loss_weight", Rule::Rename, "z_loss_coef"},
    {"interleave_probs", Rule::Refuse, "write weight in each dataset's entry"},
    {"dataset_shard_num", Rule::Refuse, "not supported yet; write shards in the dataset's entry"},
    {"dataset_shard_idx", Rule::Refuse, "not supported yet; write shards_idx in the dataset's entry"},
    {"shuffle_before_merging_datasets", Rule::Refuse, kNotYet},
    {"default_system_message", Rule::Refuse, kNotYet},
    {"chat_template_args", Rule::Rename, "chat_template_kwargs"},
    {"overrides_of_model_config", Rule::Rename, "model_config"},
    {"overrides_of_model_kwargs", Rule::Refuse, kEditConfig},
    {"rope_scaling", Rule::Special, "model_config.rope_scaling", "sets `model_config.rope_scaling`"},
    {"s2_attention", Rule::Refuse, "shifted sparse attention is not supported yet"},
    {"landmark_attention", Rule::Refuse, "landmark attention is not supported; leave it out"},
    {"xpos_rope", Rule::Refuse, "xPos is not supported; leave it out"},
    {"trl", Rule::Refuse, kPreference},
    {"ebft", Rule::Refuse, kPreference},
    {"dpo_*", Rule::Refuse, kPreference},
    {"orpo_*", Rule::Refuse, kPreference},
    {"kto_*", Rule::Refuse, kPreference},
    {"simpo_gamma", Rule::Refuse, kPreference},
    {"cpo_alpha", Rule::Refuse, kPreference},
    {"rpo_alpha", Rule::Refuse, kPreference},
    {"rl_beta", Rule::Refuse, kPreference},
    {"precompute_ref_log_probs", Rule::Refuse, kPreference},
    {"nemo_gym_*", Rule::Refuse, kPreference},
    {"reward_model", Rule::Special, "reward_model", "sets `task: reward_model`"},
    {"process_reward_model", Rule::Refuse, kReward},
    {"kd_*", Rule::Refuse, "distillation is not supported yet"},
    // Keys that have no effect here.
    {"tokenizer_type", Rule::Ignore, kFolder, "autotokenizer"},
    {"cls_model_config", Rule::Ignore, kFolder},
    {"type_of_model", Rule::Ignore, kFolder},
    {"base_model_ignore_patterns", Rule::Quiet, "only the files that are needed are downloaded"},
    {"base_model_config", Rule::Ignore, kFolder},
    {"trust_remote_code", Rule::Ignore, kFolder},
    {"is_llama_derived_model", Rule::Ignore, kFolder},
    {"is_mistral_derived_model", Rule::Ignore, kFolder},
    {"is_qwen_derived_model", Rule::Ignore, kFolder},
    {"is_falcon_derived_model", Rule::Ignore, kFolder},
    {"tokenizer_use_fast", Rule::Ignore, kFolder},
    {"tokenizer_legacy", Rule::Ignore, kFolder},
    {"tokenizer_save_jinja_files", Rule::Ignore, kFolder},
    {"strict", Rule::Quiet, kInternal},
    {"device_map", Rule::Ignore, kMemory, "auto cpu"},
    {"max_memory", Rule::Ignore, kMemory},
    {"gpu_memory_limit", Rule::Ignore, kMemory},
    {"low_cpu_mem_usage", Rule::Ignore, kMemory},
    {"attn_implementation", Rule::Quiet, kHow},
    {"flash_attention", Rule::Quiet, kHow},
    {"flash_attn_*", Rule::Quiet, kHow},
    {"sdp_attention", Rule::Quiet, kHow},
    {"xformers_attention", Rule::Quiet, kHow},
    {"flex_attention", Rule::Quiet, kHow},
    {"flex_attn_compile_kwargs", Rule::Quiet, kHow},
    {"eager_attention", Rule::Quiet, kHow},
    {"sage_attention", Rule::Quiet, kHow},
    {"flash_optimum", Rule::Quiet, kHow},
    {"sdpa_varlen", Rule::Quiet, kHow},
    {"large_head_attention", Rule::Quiet, kHow},
    {"gemma4_hybrid_attn_impl", Rule::Quiet, kHow},
    {"fused_attn_kernel", Rule::Quiet, kHow},
    {"use_kernels", Rule::Quiet, kHow},
    {"use_scattermoe", Rule::Quiet, kHow},
    {"use_sonicmoe", Rule::Quiet, kHow},
    {"use_dsv4_kernels", Rule::Quiet, kHow},
    {"use_glm_dsa_kernels", Rule::Quiet, kHow},
    {"dsv4_*", Rule::Quiet, kHow},
    {"experts_implementation", Rule::Quiet, kHow},
    {"expert_backend", Rule::Quiet, kHow},
    {"expert_parallel_*", Rule::Quiet, kHow},
    {"moe_*", Rule::Quiet, kHow},
    {"llama4_linearized_experts", Rule::Quiet, kHow},
    {"tiled_mlp", Rule::Quiet, kHow},
    {"tiled_mlp_*", Rule::Quiet, kHow},
    {"torch_dtype", Rule::Quiet, kFolder},
    {"fp32_norms", Rule::Quiet, kFloat32},
    {"fp32_norm_classes", Rule::Quiet, kFloat32},
    {"embeddings_skip_upcast", Rule::Quiet, kFloat32},
    {"peft_autocast_adapter_dtype", Rule::Quiet, kFloat32},
    {"qlora_sharded_model_loading", Rule::Quiet, kMemory},
    {"experimental_skip_move_to_device", Rule::Quiet, kMemory},
    {"torchdistx_path", Rule::Quiet, kMemory},
    {"deepcompile", Rule::Quiet, kHow},
    {"gc_steps", Rule::Quiet, kMemory},
    {"gc_collect_steps", Rule::Quiet, kMemory},
    {"torch_empty_cache_steps", Rule::Quiet, kMemory},
    {"accelerator_config", Rule::Quiet, kHow},
    {"world_size", Rule::Quiet, kLauncher},
    {"use_ray", Rule::Quiet, kLauncher},
    {"ray_*", Rule::Quiet, kLauncher},
    {"resources_per_worker", Rule::Quiet, kLauncher},
    {"gradio_*", Rule::Quiet, kOtherVerb},
    {"axolotl_config_path", Rule::Quiet, kInternal},
    {"collator_pad_to_longest", Rule::Quiet, kNoPadding},
    {"is_preprocess", Rule::Quiet, kPrepare},
    {"preprocess_iterable", Rule::Quiet, kPrepare},
    {"num_dataset_shards_to_save", Rule::Quiet, kPrepare},
    {"max_prompt_len", Rule::Quiet, kOfRefused},
    {"pose_*", Rule::Quiet, kOfRefused},
    {"eaft_*", Rule::Quiet, kOfRefused},
    {"scaling_softmax_*", Rule::Quiet, kOfRefused},
    {"qgalore_*", Rule::Quiet, kOfRefused},
    {"dion_*", Rule::Quiet, kOfRefused},
    {"capabilities", Rule::Quiet, kInternal},
    {"env_capabilities", Rule::Quiet, kInternal},
    {"vllm", Rule::Ignore, kOtherVerb},
    {"layer_offloading", Rule::Ignore, kMemory},
    {"selective_checkpointing", Rule::Ignore, kHow},
    {"generate_samples", Rule::Ignore, kOtherVerb},
    {"num_generation_samples", Rule::Quiet, kOtherVerb},
    {"generation_*", Rule::Quiet, kOtherVerb},
    {"lm_eval_*", Rule::Ignore, kOtherVerb},
    {"greater_is_better", Rule::Refuse, kLess},
    {"bench_split", Rule::Ignore, kOtherVerb},
    {"lora_mlp_kernel", Rule::Quiet, kHow},
    {"lora_qkv_kernel", Rule::Quiet, kHow},
    {"lora_o_kernel", Rule::Quiet, kHow},
    {"lora_embedding_kernel", Rule::Quiet, kHow},
    {"lora_on_cpu", Rule::Ignore, kMemory},
    {"liger_*", Rule::Quiet, kHow},
    {"cut_cross_entropy", Rule::Quiet, kHow},
    {"chunked_cross_entropy", Rule::Quiet, kHow},
    {"chunked_cross_entropy_num_chunks", Rule::Quiet, kHow},
    {"unsloth_*", Rule::Ignore, kHow},
    {"merge_lora", Rule::Ignore, kOtherVerb},
    {"merge_method", Rule::Ignore, kOtherVerb},
    {"tf32", Rule::Quiet, kHow},
    {"torch_compile", Rule::Ignore, kCompile},
    {"torch_compile_*", Rule::Quiet, kCompile},
    {"eval_batch_size", Rule::Ignore, kNoPadding},
    {"eval_causal_lm_metrics", Rule::Ignore, kOtherVerb},
    {"do_causal_lm_eval", Rule::Ignore, kOtherVerb},
    {"do_bench_eval", Rule::Ignore, kOtherVerb},
    {"bench_dataset", Rule::Ignore, kOtherVerb},
    {"pad_to_sequence_len", Rule::Quiet, kNoPadding},
    {"pad_to_multiple_of", Rule::Quiet, kNoPadding},
    {"batch_flattening", Rule::Quiet, kHow},
    {"sample_packing_group_size", Rule::Ignore, kPack},
    {"sample_packing_bin_size", Rule::Ignore, kPack},
    {"sample_packing_eff_est", Rule::Ignore, kPack},
    {"sample_packing_seq_len_multiplier", Rule::Ignore, kPack},
    {"sample_packing_mp_start_method", Rule::Quiet, kPack},
    {"multipack_real_batches", Rule::Ignore, kPack},
    {"total_num_tokens", Rule::Ignore, kTold},
    {"total_supervised_tokens", Rule::Ignore, kTold},
    {"dataset_num_proc", Rule::Ignore, kPrepare},
    {"dataset_processes", Rule::Ignore, kPrepare},
    {"dataset_keep_in_memory", Rule::Ignore, kMemory},
    {"dataloader_*", Rule::Ignore, kPrepare},
    {"skip_prepare_dataset", Rule::Ignore, kPrepare},
    {"remove_unused_columns", Rule::Ignore, kPrepare},
    {"push_dataset_to_hub", Rule::Ignore, kHub},
    {"save_first_step", Rule::Ignore, kPieces},
    {"save_safetensors", Rule::Quiet, kPieces},
    {"dynamic_checkpoint", Rule::Ignore, "touch <output_dir>.tessera-save saves at any time"},
    {"hub_token", Rule::Ignore, kToken},
    {"hub_*", Rule::Ignore, kHub},
    {"hf_*", Rule::Ignore, kToken},
    {"hf_mlflow_log_artifacts", Rule::Ignore, kOfTracker},
    {"wandb_*", Rule::Ignore, kOfTracker},
    {"mlflow_*", Rule::Ignore, kOfTracker},
    {"comet_*", Rule::Ignore, kNoTracker},
    {"use_comet", Rule::Ignore, kNoTracker},
    {"trackio_*", Rule::Ignore, kNoTracker},
    {"use_trackio", Rule::Ignore, kNoTracker},
    {"swanlab_*", Rule::Ignore, kNoTracker},
    {"use_swanlab", Rule::Ignore, kNoTracker},
    {"otel_*", Rule::Ignore, kOfTracker},
    {"report_to", Rule::Special, "report_to", kReportTo},
    {"run_name", Rule::Special, "run_name", "means `wandb_name` and `mlflow_run_name`"},
    {"use_tensorboard", Rule::Quiet, kTold},
    {"include_tokens_per_second", Rule::Quiet, kTold},
    {"include_tkps", Rule::Quiet, kTold},
    {"profiler_steps", Rule::Ignore, kProfile},
    {"profiler_steps_start", Rule::Ignore, kProfile},
    {"debug", Rule::Ignore, kTold},
    {"local_rank", Rule::Ignore, kLauncher},
    {"ddp", Rule::Ignore, kHow},
    {"ddp_find_unused_parameters", Rule::Ignore, kHow},
    {"ddp_bucket_cap_mb", Rule::Ignore, kHow},
    {"ddp_broadcast_buffers", Rule::Ignore, kHow},
    {"heads_k_stride", Rule::Ignore, kHow},
    {"ring_attn_func", Rule::Ignore, kHow},
    // Accelerate's launch settings: the launcher decides these.
    {"compute_environment", Rule::Ignore, kLauncher},
    {"num_machines", Rule::Ignore, kLauncher},
    {"num_processes", Rule::Ignore, kLauncher},
    {"machine_rank", Rule::Ignore, kLauncher},
    {"main_process_ip", Rule::Ignore, kLauncher},
    {"main_process_port", Rule::Ignore, kLauncher},
    {"main_training_function", Rule::Ignore, kLauncher},
    {"rdzv_backend", Rule::Ignore, kLauncher},
    {"same_network", Rule::Ignore, kLauncher},
    {"downcast_bf16", Rule::Ignore, kFloat32, "no"},
    {"enable_cpu_affinity", Rule::Ignore, kLauncher},
    {"gpu_ids", Rule::Ignore, kLauncher},
    {"use_cpu", Rule::Map, "device", "true=cpu false="},
    {"no_cuda", Rule::Map, "device", "true=cpu false="},
    {"tpu_*", Rule::Ignore, kLauncher},
    {"dynamo_config", Rule::Ignore, kCompile},
    {"commands", Rule::Ignore, kLauncher},
    {"command_file", Rule::Ignore, kLauncher},
    {"mpirun_config", Rule::Ignore, kLauncher},
    {"megatron_lm_config", Rule::Refuse,
     "Megatron-LM is not used; write tensor_parallel_size and pipeline_parallel_size"},
    {"sagemaker_*", Rule::Refuse, "runs on SageMaker are not supported"},
    // Names of other tools, for "did you mean".
    {"adam_eps", Rule::Hint, "adam_epsilon"},
    {"adam_b1", Rule::Hint, "adam_beta1"},
    {"adam_b2", Rule::Hint, "adam_beta2"},
    {"exp_avg_dtype", Rule::Hint, "optimizer_state_dtype"},
    {"exp_avg_sq_dtype", Rule::Hint, "optimizer_state_dtype"},
    {"opt_m_dtype", Rule::Hint, "optimizer_state_dtype"},
    {"opt_v_dtype", Rule::Hint, "optimizer_state_dtype"},
    {"bf16_stochastic_round", Rule::Hint, "optimizer_state_dtype"},
    {"bf16_optimizer_states", Rule::Hint, "optimizer_state_dtype"},
    {"lora_out_dir", Rule::Hint, "output_dir"},
    {"eta_min", Rule::Hint, "lr_min"},
    {"lr", Rule::Hint, "learning_rate"},
    {"epochs", Rule::Hint, "num_epochs"},
    {"num_train_epochs", Rule::Hint, "num_epochs"},
    {"per_device_train_batch_size", Rule::Hint, "micro_batch_size"},
    {"max_seq_length", Rule::Hint, "sequence_len"},
    {"max_seq_len", Rule::Hint, "sequence_len"},
    {"max_length", Rule::Hint, "sequence_len"},
    {"cutoff_len", Rule::Hint, "sequence_len"},
    {"model_name_or_path", Rule::Hint, "base_model"},
    {"model", Rule::Hint, "base_model"},
    {"dataset", Rule::Hint, "datasets"},
    {"lora_rank", Rule::Hint, "lora_r"},
    {"lr_scheduler_type", Rule::Hint, "lr_scheduler"},
    {"clip_grad_norm", Rule::Hint, "max_grad_norm"},
    {"packing", Rule::Hint, "sample_packing"},
};

constexpr ForeignKey kDatasetForeignKeys[] = {
    {"message_field_role", Rule::Special, "message_property_mappings.role",
     "sets `message_property_mappings.role`"},
    {"message_field_content", Rule::Special, "message_property_mappings.content",
     "sets `message_property_mappings.content`"},
    {"conversation", Rule::Map, "chat_template",
     "chatml=chatml llama3=llama3 mistral=mistral alpaca=alpaca *=!"},
    {"field_human", Rule::Refuse, kNotYet},
    {"field_model", Rule::Refuse, kNotYet},
    {"input_transform", Rule::Refuse, "custom transformations (Python functions) cannot be loaded"},
    {"input_format", Rule::Refuse, "custom prompt formats are not supported yet"},
    {"logprobs_field", Rule::Refuse, "distillation is not supported yet"},
    {"temperature", Rule::Refuse, "distillation is not supported yet"},
    {"max_completion_length", Rule::Refuse, kReward},
    {"train_on_last_step_only", Rule::Refuse, kReward},
    {"text_column", Rule::Rename, "field"},
    {"length", Rule::Refuse, "synthetic data are not supported; tessera bench train uses random tokens"},
    {"sequence_length", Rule::Refuse,
     "synthetic data are not supported; tessera bench train uses random tokens"},
    {"min_input_id", Rule::Refuse,
     "synthetic data are not supported; tessera bench train uses random tokens"},
    {"max_input_id", Rule::Refuse,
     "synthetic data are not supported; tessera bench train uses random tokens"},
    {"seed", Rule::Refuse, "synthetic data are not supported; tessera bench train uses random tokens"},
    {"trust_remote_code", Rule::Ignore, kFolder},
    {"preprocess_shards", Rule::Ignore, kPrepare},
    {"file", Rule::Hint, "path"},
};

constexpr ForeignKey kFsdpKeys[] = {
    {"version", Rule::Quiet, kLauncher},
    {"reshard_after_forward", Rule::Map, "zero_stage", kStages},
    {"sharding_strategy", Rule::Map, "zero_stage", kStages},
    {"activation_checkpointing", Rule::Rename, "gradient_checkpointing"},
    {"mixed_precision_policy", Rule::Map, "dtype",
     "bf16=bfloat16 bfloat16=bfloat16 fp32=float32 no= fp16=float16 float16=float16"},
    {"offload_params", Rule::Map, "offload_param_device", "true=cpu false="},
    {"cpu_offload_pin_memory", Rule::Quiet, kHow},
    {"state_dict_type", Rule::Quiet, kPieces},
    {"final_state_dict_type", Rule::Quiet, kPieces},
    {"auto_wrap_policy", Rule::Quiet, kHow},
    {"transformer_layer_cls_to_wrap", Rule::Quiet, kHow},
    {"min_num_params", Rule::Quiet, kHow},
    {"cpu_ram_efficient_loading", Rule::Quiet, kMemory},
    {"sync_module_states", Rule::Quiet, kMemory},
    {"use_orig_params", Rule::Quiet, kHow},
    {"ignored_modules", Rule::Refuse, "every parameter is sharded"},
    {"limit_all_gathers", Rule::Quiet, kHow},
    {"backward_prefetch", Rule::Quiet, kHow},
    {"backward_prefetch_policy", Rule::Quiet, kHow},
    {"forward_prefetch", Rule::Quiet, kHow},
};

constexpr ForeignKey kParallelismKeys[] = {
    {"dp_replicate_size", Rule::Rename, "dp_replicate_size"},
    {"dp_shard_size", Rule::Rename, "dp_shard_size"},
    {"tp_size", Rule::Rename, "tensor_parallel_size"},
    {"pp_size", Rule::Rename, "pipeline_parallel_size"},
    {"cp_size", Rule::Special, "ring_ranks", "means `context_parallel_size`; `1` is unset"},
    {"sp_size", Rule::Special, "ulysses_ranks",
     "means `context_parallel_size`, with `context_parallel_method: ulysses`; `1` is unset"},
    {"cp_backend", Rule::Quiet, kHow},
    {"cp_comm_strategy", Rule::Quiet, kHow},
    {"sp_backend", Rule::Quiet, kHow},
    {"sp_seq_length", Rule::Quiet, kHow},
    {"sp_seq_length_is_variable", Rule::Quiet, kHow},
    {"sp_attn_implementation", Rule::Quiet, kHow},
};

constexpr ForeignKey kGradientCheckpointingKeys[] = {
    {"use_reentrant", Rule::Quiet, kHow},
    {"preserve_rng_state", Rule::Quiet, kHow},
    {"offload", Rule::Map, "activation_offloading", "true=true false="},
};

constexpr ForeignKey kBitsAndBytesKeys[] = {
    {"load_in_4bit", Rule::Rename, "load_in_4bit"},
    {"load_in_8bit", Rule::Rename, "load_in_8bit"},
    {"bnb_4bit_quant_type", Rule::Rename, "bnb_4bit_quant_type"},
    {"bnb_4bit_use_double_quant", Rule::Rename, "bnb_4bit_use_double_quant"},
    {"bnb_4bit_compute_dtype", Rule::Quiet, kComputeType},
    {"bnb_4bit_quant_storage", Rule::Quiet, kStorage},
    {"llm_int8_skip_modules", Rule::Rename, "llm_int8_skip_modules"},
    {"llm_int8_threshold", Rule::Quiet, "weights of eight bits are multiplied with whole activations"},
    {"llm_int8_has_fp16_weight", Rule::Refuse, kNotYet},
    {"llm_int8_enable_fp32_cpu_offload", Rule::Quiet, kMemory},
};

constexpr ForeignKey kPeftKeys[] = {
    {"loftq_config", Rule::Enter, "peft.loftq_config"},
    {"*", Rule::Refuse, kNotYet},
};
constexpr ForeignKey kLoftqKeys[] = {
    {"loftq_bits", Rule::Map, "peft_init_lora_weights", "4=loftq 8=loftq"},
    {"loftq_iter", Rule::Refuse, "the base is quantised once, before the factors are made", "1"},
};

constexpr ForeignKey kSchedulerKeys[] = {
    {"num_cycles", Rule::Rename, "lr_cycles"},
    {"min_lr_rate", Rule::Rename, "cosine_min_lr_ratio"},
    {"min_lr_ratio", Rule::Rename, "cosine_min_lr_ratio"},
    {"min_lr", Rule::Rename, "lr_min"},
    {"factor", Rule::Rename, "lr_plateau_factor"},
    {"patience", Rule::Rename, "lr_plateau_patience"},
    {"threshold", Rule::Rename, "lr_plateau_threshold"},
    {"threshold_mode", Rule::Rename, "lr_plateau_threshold_mode"},
    {"cooldown", Rule::Rename, "lr_plateau_cooldown"},
    {"mode", Rule::Refuse, kLess, "min"},
    {"eps", Rule::Refuse, "a reduction of the learning rate by 1e-8 or less is ignored",
     "1e-8 1e-08 0.00000001"},
    {"verbose", Rule::Quiet, kTold},
    {"lr_end", Rule::Rename, "lr_end"},
    {"power", Rule::Rename, "lr_power"},
    {"timescale", Rule::Rename, "lr_timescale"},
    {"num_decay_steps", Rule::Rename, "lr_decay_steps"},
    {"num_stable_steps", Rule::Rename, "lr_stable_steps"},
    {"warmup_type", Rule::Rename, "lr_warmup_type"},
    {"decay_type", Rule::Rename, "lr_decay_type"},
    {"div_factor", Rule::Rename, "lr_div_factor"},
    {"final_div_factor", Rule::Rename, "lr_final_div_factor"},
    {"pct_start", Rule::Rename, "warmup_ratio"},
    {"anneal_strategy", Rule::Refuse, "both phases of the cycle are cosines", "cos"},
    {"three_phase", Rule::Refuse, "the cycle has two phases"},
    {"cycle_momentum", Rule::Ignore, kOneCycle},
    {"base_momentum", Rule::Ignore, kOneCycle},
    {"max_momentum", Rule::Ignore, kOneCycle},
};

constexpr Section kOwnSections[] = {
    {"", "", false, kTopKeys},
    {"datasets", "", false, kDatasetForeignKeys},
    {"fsdp_config", "fsdp_", false, kFsdpKeys},
    {"parallelism_config", "parallelism_config_", false, kParallelismKeys},
    {"gradient_checkpointing_kwargs", "", false, kGradientCheckpointingKeys},
    {"lr_scheduler_kwargs", "", false, kSchedulerKeys},
    {"optim_args", "", false, kOptimizerArguments},
    {"bnb_config_kwargs", "", false, kBitsAndBytesKeys},
    {"peft", "", false, kPeftKeys},
    {"peft.loftq_config", "", false, kLoftqKeys},
    {"lr_groups", "", false, {}},
};

}  // namespace

std::span<const Section> sections() {
  static const std::vector<Section> all = [] {
    std::vector<Section> list(std::begin(kOwnSections), std::end(kOwnSections));
    for (const auto& others : {deepspeed_sections(), trainer_sections()})
      list.insert(list.end(), others.begin(), others.end());
    return list;
  }();
  return all;
}

const Section& section(std::string_view path) {
  for (const Section& candidate : sections()) {
    if (candidate.path == path) return candidate;
  }
  throw_internal(__FILE__, __LINE__, "section exists", "no section " + std::string(path));
}

const ForeignKey* find_foreign(const Section& section, std::string_view key) {
  const ForeignKey* longest = nullptr;
  for (const ForeignKey& candidate : section.keys) {
    if (candidate.name == key) return &candidate;
    if (candidate.name.ends_with('*')) {
      const std::string_view prefix = candidate.name.substr(0, candidate.name.size() - 1);
      const bool is_longer = longest == nullptr || candidate.name.size() > longest->name.size();
      if (is_longer && key.size() > prefix.size() && key.starts_with(prefix)) longest = &candidate;
    }
  }
  return longest;
}

}  // namespace tessera::config
