// Tests of keys of Accelerate, DeepSpeed and Axolotl that are not native.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/optimizer_rules.h"
#include "tessera/config/schema.h"

#include "tests/config/config_testing.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using ::testing::HasSubstr;

ZeroStage stage_of(const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml").zero_stage; }

TEST(AliasKeysTest, EverySpellingOfTheDevice) {
  const auto device_of = [](const std::string& lines) {
    return parse_recipe(kMinimal + lines, "r.yaml").device.text();
  };
  EXPECT_EQ(device_of(""), "auto");
  EXPECT_EQ(device_of("device: auto\n"), "auto");
  EXPECT_EQ(device_of("device: cpu\n"), "cpu");
  EXPECT_EQ(device_of("device: CUDA\n"), "cuda");
  EXPECT_EQ(device_of("use_cpu: true\n"), "cpu");
  EXPECT_EQ(device_of("no_cuda: yes\nuse_cpu: true\n"), "cpu");
  EXPECT_EQ(device_of("use_cpu: false\ndevice: cuda\n"), "cuda");
  EXPECT_EQ(device_of("device: cuda:0\n"), "cuda:0");
  EXPECT_EQ(device_of("device: CUDA:15\n"), "cuda:15");
  for (const char* device : {"cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999"})
    EXPECT_THAT(message_of(kMinimal + "device: '" + device + "'\n"), HasSubstr("need cuda:0, cuda:1"))
        << device;
  EXPECT_THAT(message_of(kMinimal + "device: mps\n"), HasSubstr("not supported"));
  EXPECT_THAT(message_of(kMinimal + "device: gpu\n"), HasSubstr("need auto, cpu, cuda"));
  EXPECT_THAT(message_of(kMinimal + "use_cpu: true\ndevice: cuda\n"), HasSubstr("use_cpu"));
}

TEST(AliasKeysTest, EverySpellingOfTheShardingStage) {
  EXPECT_EQ(stage_of(""), ZeroStage::Zero3);
  EXPECT_EQ(stage_of("zero_stage: 0\n"), ZeroStage::Ddp);
  EXPECT_EQ(stage_of("zero_stage: 1\n"), ZeroStage::Zero1);
  EXPECT_EQ(stage_of("fsdp_config: {reshard_after_forward: false}\n"), ZeroStage::Zero2);
  EXPECT_EQ(stage_of("fsdp_config: {fsdp_reshard_after_forward: yes}\n"), ZeroStage::Zero3);
  EXPECT_EQ(stage_of("fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n"), ZeroStage::Zero2);
  EXPECT_EQ(stage_of("fsdp_config: {sharding_strategy: NO_SHARD}\n"), ZeroStage::Ddp);
  EXPECT_EQ(stage_of("fsdp_config: {fsdp_sharding_strategy: 1}\n"), ZeroStage::Zero3);
  EXPECT_EQ(stage_of("fsdp: [shard_grad_op, auto_wrap, offload]\n"), ZeroStage::Zero2);
  EXPECT_EQ(stage_of("fsdp: full_shard auto_wrap\n"), ZeroStage::Zero3);
  EXPECT_EQ(stage_of("deepspeed: {zero_optimization: {stage: 1}}\n"), ZeroStage::Zero1);
  EXPECT_EQ(stage_of("deepspeed: {zero_optimization: {stage: auto}}\n"), ZeroStage::Zero3);
  EXPECT_EQ(stage_of("deepspeed_config: {zero_stage: 2, zero3_init_flag: true}\n"), ZeroStage::Zero2);
  EXPECT_EQ(stage_of("distributed_type: MULTI_GPU\n"), ZeroStage::Ddp);
  EXPECT_EQ(stage_of("distributed_type: FSDP\n"), ZeroStage::Zero3);
}

TEST(AliasKeysTest, TrackersOfOtherToolsAreSwitchedOn) {
  const auto read = [](const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml"); };
  EXPECT_EQ(read("report_to: wandb\n").use_wandb, true);
  EXPECT_EQ(read("report_to: [tensorboard, WandB, mlflow]\n").use_wandb, true);
  EXPECT_EQ(read("report_to: [tensorboard, wandb, mlflow]\n").use_mlflow, true);
  EXPECT_FALSE(read("report_to: tensorboard\n").use_wandb.has_value());
  EXPECT_FALSE(read("report_to: none\nrun_name: x\n").use_mlflow.has_value());
  EXPECT_EQ(read("run_name: x\n").wandb_name, "x");
  EXPECT_EQ(read("run_name: x\n").mlflow_run_name, "x");
  EXPECT_EQ(warnings_of(kMinimal + "report_to: [comet_ml, wandb]\n"),
            "tessera: warning: r.yaml: accepted without effect: report_to (line 4)\n");
  const Recipe recipe =
      read("deepspeed: {wandb: {enabled: true, project: p, team: t}, tensorboard: {enabled: true}}\n");
  EXPECT_EQ(recipe.use_wandb, true);
  EXPECT_EQ(recipe.wandb_project, "p");
  EXPECT_EQ(recipe.wandb_entity, "t");
  EXPECT_EQ(read("deepspeed: {wandb: {enabled: false, project: p}}\n").wandb_project, "");
  EXPECT_THAT(message_of(kMinimal + "use_wandb: false\nreport_to: wandb\n"), HasSubstr("disagree"));
  EXPECT_THAT(message_of(kMinimal + "mlflow_tracking_uri: http://host:5000\n"),
              HasSubstr("runs are not sent to a tracking server"));
  EXPECT_NO_THROW(read("mlflow_tracking_uri: file:///runs\n"));
  EXPECT_NO_THROW(read("mlflow_tracking_uri: ./ml:runs\n"));
}

TEST(AliasKeysTest, TheResultIsUploadedWhereItsPlaceIsNamed) {
  const auto read = [](const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml"); };
  EXPECT_FALSE(read("").uploads());
  EXPECT_TRUE(read("hub_model_id: org/name\n").uploads());
  EXPECT_TRUE(read("hub_model_id: org/name\npush_to_hub: true\n").uploads());
  EXPECT_FALSE(read("hub_model_id: org/name\npush_to_hub: false\nsave_final: false\n").uploads());
  EXPECT_EQ(read("hub_model_id: org/name\n").hub_private_repo, std::nullopt);
  EXPECT_EQ(warnings_of(kMinimal + "hub_model_id: o/n\nhub_strategy: end\nhub_private_repo: true\n"), "");
  for (const char* strategy : {"every_save", "checkpoint", "all_checkpoints"}) {
    EXPECT_THAT(warnings_of(kMinimal + "hub_model_id: o/n\nhub_strategy: " + strategy + "\n"),
                HasSubstr("the result alone is uploaded, at the end of the run"));
  }
  EXPECT_THAT(warnings_of(kMinimal + "hub_revision: v1\n"), HasSubstr("no effect without 'hub_model_id'"));
  EXPECT_THAT(message_of(kMinimal + "push_to_hub: true\n"), HasSubstr("need hub_model_id: org/name"));
  for (const char* name : {"name", "a/b/c", "'org/na me'", "org/name.git"}) {
    EXPECT_THAT(message_of(kMinimal + "hub_model_id: " + name + "\n"),
                HasSubstr("E-CONFIG-RANGE]: r.yaml:4:1: key 'hub_model_id': the hub does not accept"))
        << name;
  }
  EXPECT_THAT(message_of(kMinimal + "hub_model_id: o/n\nhub_revision: a b\n"),
              HasSubstr("a branch cannot have"));
  EXPECT_THAT(message_of(kMinimal + "hub_model_id: o/n\nsave_final: false\n"),
              HasSubstr("there is no result to upload"));
}

TEST(AliasKeysTest, ArgumentsOfTheOptimizer) {
  for (const char* line : {"optim_args: beta1=0.8, beta2=0.95,eps=1e-6, fused=true",
                           "optim_args: {betas: [0.8, 0.95], epsilon: 1e-6, amsgrad: false}",
                           "optim_args: {betas: '0.8, 0.95', eps: '1e-6'}"}) {
    const Recipe recipe = parse_recipe(kMinimal + line + '\n', "r.yaml");
    EXPECT_EQ(recipe.adam_beta1, 0.8) << line;
    EXPECT_EQ(recipe.adam_beta2, 0.95) << line;
    EXPECT_EQ(recipe.adam_epsilon, 1e-6) << line;
  }
  EXPECT_THAT(message_of(kMinimal + "adam_beta1: 0.9\noptim_args: beta1=0.8\n"),
              HasSubstr("keys 'adam_beta1' (line 4) and 'optim_args.beta1' (line 5) disagree"));
  EXPECT_THAT(message_of(kMinimal + "optim_args: {amsgrad: true}\n"),
              HasSubstr("AMSGrad is not supported yet"));
  EXPECT_THAT(message_of(kMinimal + "optim_args: ranks=16\n"), HasSubstr("unknown key 'optim_args.ranks'"));
  EXPECT_THAT(message_of(kMinimal + "optim_args: beta1\n"), HasSubstr("need a map, or a text key=value"));
}

TEST(AliasKeysTest, OptionsOfOptimizers) {
  const Recipe rmsprop = parse_recipe(
      kMinimal + "optimizer: rmsprop\noptim_args: alpha=0.9, momentum=0.5, centered=true, eps=1e-6\n",
      "r.yaml");
  const OptimizerOptions options = optimizer_options(rmsprop);
  EXPECT_EQ(options.alpha, 0.9);
  EXPECT_EQ(options.momentum, 0.5);
  EXPECT_EQ(options.centered, 1.0);
  EXPECT_EQ(options.epsilon, 1e-6);
  const std::string ademamix = kMinimal + "optimizer: ademamix\n";
  for (const char* line : {"adam_beta3: 0.99", "optim_args: {betas: [0.9, 0.999, 0.99]}",
                           "optimizer_args: {adam_beta3: 0.99}", "optim_args: beta3=0.99"}) {
    EXPECT_EQ(optimizer_options(parse_recipe(ademamix + line + '\n', "r.yaml")).beta3, 0.99) << line;
  }
  // Each rule has its own defaults, also of keys that AdamW reads.
  EXPECT_EQ(optimizer_options(parse_recipe(kMinimal + "optimizer: adagrad\n", "r.yaml")).epsilon, 1e-10);
  EXPECT_EQ(optimizer_options(parse_recipe(kMinimal + "optimizer: adagrad\nadam_epsilon: 1e-8\n", "r.yaml"))
                .epsilon,
            1e-8);
  EXPECT_EQ(parse_recipe(kMinimal + "optimizer: sgd\noptim_args: {momentum: 0.9, nesterov: true}\n", "r.yaml")
                .optimizer_args.at("nesterov"),
            "true");
  EXPECT_THAT(message_of(kMinimal + "optim_args: {momentum: 0.9}\n"),
              HasSubstr("E-CONFIG-UNSUPPORTED]: r.yaml:4:14: key 'optimizer_args.momentum': 'optimizer: "
                        "adamw_torch_fused' has no such option"));
  EXPECT_THAT(message_of(ademamix + "optimizer_args: {momentum: 0.9}\n"),
              HasSubstr("need adam_beta3, alpha, t_alpha, t_beta3"));
  EXPECT_THAT(message_of(ademamix + "optimizer_args: {t_alpha: 1.5}\n"),
              HasSubstr("need a whole number from 0"));
  EXPECT_THAT(
      message_of(kMinimal + "optimizer: sgd\noptimizer_args: {momentum: 1}\n"),
      HasSubstr("key 'optimizer_args.momentum': out of range; got 1, need a number from 0 to below 1"));
  EXPECT_THAT(message_of(kMinimal + "optimizer: sgd\noptimizer_args: {nesterov: true}\n"),
              HasSubstr("needs a momentum"));
  EXPECT_THAT(message_of(kMinimal + "optimizer: sgd\noptimizer_args: {momentun: 0.9}\n"),
              HasSubstr("did you mean 'momentum'?"));
}

TEST(AliasKeysTest, OptimizersThatProject) {
  const std::string apollo = kMinimal + "optimizer: apollo_adamw\n";
  const Recipe recipe = parse_recipe(apollo +
                                         "optim_args: 'rank=1, scale=128, scale_type=tensor, "
                                         "proj=random'\noptim_target_modules: '.*attn.*'\n",
                                     "r.yaml");
  const OptimizerOptions options = optimizer_options(recipe),
                         mini = default_options(OptimizerKind::ApolloMini);
  EXPECT_EQ(recipe.optimizer, OptimizerKind::Apollo);
  EXPECT_EQ(recipe.optim_target_modules, std::vector<std::string>{".*attn.*"});
  for (const auto field : {&OptimizerOptions::rank, &OptimizerOptions::scale, &OptimizerOptions::scale_type})
    EXPECT_EQ(options.*field, mini.*field);
  EXPECT_EQ(optimizer_options(parse_recipe(kMinimal + "optimizer: galore_adamw\n", "r.yaml")).epsilon, 1e-6);
  for (const auto& [lines, part] : std::vector<std::pair<std::string, std::string>>{
           {"optim_args: proj=svd\n", "key 'optimizer_args.proj': out of range; got svd, need random"},
           {"optimizer_args: {proj_type: reverse_std}\n", "got reverse_std, need std"},
           {"optimizer_args: {scale_type: 1}\n", "got 1, need channel or tensor"},
           {"optimizer_args: {rank: 0}\n", "need a whole number from 1"},
           {"offload_optimizer_device: cpu\n", "states stay on the device with 'optimizer: apollo_adamw'"}})
    EXPECT_THAT(message_of(apollo + lines), HasSubstr(part)) << lines;
  EXPECT_THAT(message_of(kMinimal + "optimizer: galore_adamw_8bit\n"), HasSubstr("write galore_adamw"));
  EXPECT_THAT(warnings_of(kMinimal + "optimizer: galore_adamw_layerwise\n"),
              HasSubstr("update_in_backward: true"));
  EXPECT_THAT(warnings_of(kMinimal + "optim_target_modules: [attn]\n"),
              HasSubstr("'optim_target_modules' has no effect with 'optimizer: adamw_torch_fused'"));
}

TEST(AliasKeysTest, WhatOnlyAdamWDoes) {
  const std::string lion = kMinimal + "optimizer: lion_32bit\n";
  for (const char* line :
       {"optimizer_state_dtype: bfloat16", "offload_optimizer_device: cpu", "offload_param_device: cpu"}) {
    EXPECT_THAT(message_of(lion + line + '\n'), HasSubstr("with 'optimizer: lion'")) << line;
    EXPECT_THAT(message_of(kMinimal + "optimizer: sgd\noptimizer_args: {momentum: 0.9}\n" + line + '\n'),
                HasSubstr("E-CONFIG-CONFLICT"))
        << line;
  }
  EXPECT_THAT(warnings_of(lion), HasSubstr("0.9 and 0.99 (adam_beta1, adam_beta2)"));
  EXPECT_EQ(warnings_of(lion + "adam_beta2: 0.99\n"), "");
  const std::string free = kMinimal + "optimizer: schedule_free_adamw\n";
  EXPECT_THAT(warnings_of(free), HasSubstr("write constant_with_warmup"));
  EXPECT_EQ(warnings_of(free + "lr_scheduler: constant_with_warmup\n"), "");
  EXPECT_THAT(message_of(kMinimal + "optimizer: lion_8bit\n"), HasSubstr("write lion_32bit"));
  EXPECT_EQ(warnings_of(kMinimal + "optimizer: adamw_bnb_8bit\n"), "");
  EXPECT_EQ(parse_recipe(kMinimal + "optimizer: paged_adamw_8bit\n", "r.yaml").optimizer,
            OptimizerKind::AdamW8bit);
  EXPECT_THAT(warnings_of(kMinimal + "optimizer: adafactor\nadam_epsilon: 1e-6\n"),
              HasSubstr("key 'adam_epsilon' has no effect with 'optimizer: adafactor'"));
  // Adam's epsilon is no default for rules that divide by the roots of other averages.
  const OptimizerOptions came =
      optimizer_options(parse_recipe(kMinimal + "optimizer: came_pytorch\nadam_epsilon2: 1e-12\n", "r.yaml"));
  EXPECT_EQ(came.epsilon, 1e-30);
  EXPECT_EQ(came.epsilon2, 1e-12);
}

TEST(AliasKeysTest, WhatLooksAtEvaluations) {
  const std::string data = kMinimal + "val_set_size: 0.1\n";
  const Recipe best =
      parse_recipe(data + "load_best_model_at_end: true\ngreater_is_better: false\n", "r.yaml");
  EXPECT_EQ(best.save_strategy, Cadence::Best);
  EXPECT_EQ(parse_recipe(data + "load_best_model_at_end: true\nsave_steps: 5\n", "r.yaml").save_strategy,
            Cadence::Steps);
  EXPECT_EQ(parse_recipe(data + "load_best_model_at_end: false\n", "r.yaml").save_strategy, Cadence::No);
  EXPECT_THAT(message_of(data + "load_best_model_at_end: true\nsave_strategy: no\n"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(message_of(data + "load_best_model_at_end: true\nmetric_for_best_model: accuracy\n"),
              HasSubstr("measure only losses"));
  EXPECT_THAT(message_of(data + "load_best_model_at_end: true\ngreater_is_better: true\n"),
              HasSubstr("lower is better"));
  for (const char* line : {"load_best_model_at_end: true", "lr_scheduler: reduce_lr_on_plateau",
                           "save_strategy: best", "early_stopping_patience: 2"}) {
    EXPECT_THAT(message_of(kMinimal + line + '\n'), HasSubstr("this run has no evaluation")) << line;
    EXPECT_THAT(message_of(data + "eval_strategy: no\n" + line + '\n'),
                HasSubstr("this run has no evaluation"));
  }
  EXPECT_THAT(warnings_of(data + "metric_for_best_model: eval_loss\n"), HasSubstr("has no effect without"));
  // Tasks are an evaluation of their own, with metrics that their files tell.
  const std::string tasks = kMinimal + "eval_tasks: [arc_easy]\n";
  EXPECT_EQ(warnings_of(tasks + "eval_steps: 5\nearly_stopping_patience: 2\n"
                                "metric_for_best_model: eval/arc_easy/acc\n"),
            "");
  EXPECT_THAT(warnings_of(tasks + "eval_strategy: no\n"), HasSubstr("key 'eval_tasks' has no effect with"));
  EXPECT_THAT(warnings_of(kMinimal + "eval_tasks_data: x\n"),
              HasSubstr("key 'eval_tasks_data' has no effect without 'eval_tasks'"));
  EXPECT_THAT(message_of(tasks + "eval_tasks_limit: 1.5\n"),
              HasSubstr("neither a share nor a whole number of documents"));
  EXPECT_THAT(message_of(tasks + "task: seq2seq\n"), HasSubstr("which only a language model tells"));
  // Samples are made of the evaluation data.
  const std::string samples = data + "eval_table_size: 2\n";
  EXPECT_EQ(warnings_of(samples + "eval_max_new_tokens: 5\n"), "");
  for (const std::string& idle : {kMinimal + "eval_table_size: 2\n", samples + "eval_strategy: no\n",
                                  data + "eval_max_new_tokens: 5\n"})
    EXPECT_THAT(warnings_of(idle), HasSubstr("has no effect with")) << idle;
  EXPECT_THAT(message_of(samples + "task: masked_lm\n"), HasSubstr("only a language model continues texts"));
  const Recipe plateau =
      parse_recipe(data +
                       "lr_scheduler: reduce_lr_on_plateau\nlr_scheduler_kwargs: {factor: 0.5, patience: 3, "
                       "threshold: 0.1,"
                       " threshold_mode: abs, cooldown: 2, min_lr: 1e-6, mode: min, eps: 1e-8}\n",
                   "r.yaml");
  EXPECT_EQ(plateau.lr_plateau_factor, 0.5);
  EXPECT_EQ(plateau.lr_plateau_patience, 3);
  EXPECT_EQ(plateau.lr_plateau_threshold, 0.1);
  EXPECT_EQ(plateau.lr_plateau_threshold_mode, PlateauMode::Absolute);
  EXPECT_EQ(plateau.lr_plateau_cooldown, 2);
  EXPECT_EQ(plateau.lr_min, 1e-6);
  EXPECT_THAT(message_of(data + "lr_scheduler: reduce_lr_on_plateau\nlr_scheduler_kwargs: {mode: max}\n"),
              HasSubstr("lower is better"));
  EXPECT_THAT(warnings_of(data + "lr_scheduler: reduce_lr_on_plateau\nwarmup_steps: 5\n"),
              HasSubstr("key 'warmup_steps' has no effect with"));
  EXPECT_THAT(message_of(kMinimal + "lr_min: 1e-4\n"), HasSubstr("must be below 'learning_rate'"));
}

TEST(AliasKeysTest, SpellingsMustAgree) {
  EXPECT_EQ(stage_of("fsdp: [full_shard]\nfsdp_config: {reshard_after_forward: true}\nzero_stage: 3\n"),
            ZeroStage::Zero3);
  EXPECT_EQ(message_of(kMinimal + "fsdp: [full_shard]\nfsdp_config:\n  reshard_after_forward: false\n"),
            "error[E-CONFIG-CONFLICT]: r.yaml:6:3: keys 'fsdp' (line 4) and "
            "'fsdp_config.reshard_after_forward' (line 6) "
            "disagree; got 3 and 2. hint: keep one of them");
  EXPECT_THAT(
      message_of(kMinimal + "deepspeed: {optimizer: {params: {lr: 3e-4}}}\n"),
      HasSubstr("keys 'learning_rate' (line 3) and 'deepspeed.optimizer.params.lr' (line 4) disagree"));
  EXPECT_THAT(message_of(kMinimal + "bf16: true\ndtype: float32\n"),
              HasSubstr("keys 'bf16' (line 4) and 'dtype' (line 5)"));
  EXPECT_NO_THROW(parse_recipe(kMinimal + "deepspeed: {optimizer: {params: {lr: 0.0001}}}\n", "r.yaml"));
  EXPECT_NO_THROW(
      parse_recipe(kMinimal + "optimizer: adamw_torch\ndeepspeed: {optimizer: {type: AdamW}}\n", "r.yaml"));
  EXPECT_NO_THROW(parse_recipe(kMinimal + "bf16: false\ndtype: bfloat16\n", "r.yaml"));
  for (const char* line : {"fp16: true", "dtype: fp16", "mixed_precision: fp16", "bf16: false\nfp16: true",
                           "deepspeed: {fp16: {enabled: true, loss_scale: 0, initial_scale_power: 12}}"}) {
    EXPECT_EQ(parse_recipe(kMinimal + line + '\n', "r.yaml").dtype, ComputeType::Float16) << line;
  }
  EXPECT_NO_THROW(parse_recipe(kMinimal + "bf16: true\nmixed_precision: bf16\ndtype: bf16\n", "r.yaml"));
}

TEST(AliasKeysTest, Fp8IsBesideBfloat16) {
  for (const char* line :
       {"fp8: true", "fp8: true\nbf16: true", "bf16: auto\nfp8: true", "fp8: true\nbf16: auto",
        "mixed_precision: fp8", "dtype: fp8", "fp8: true\nfloat32: false"}) {
    const Recipe recipe = parse_recipe(kMinimal + line + '\n', "r.yaml");
    EXPECT_TRUE(recipe.fp8) << line;
    EXPECT_EQ(recipe.dtype, ComputeType::BFloat16) << line;
    const Recipe again = parse_recipe(dump_recipe(recipe), "dumped.yaml");
    EXPECT_TRUE(again.fp8 && again.dtype == ComputeType::BFloat16) << line;
  }
  const Recipe off = parse_recipe(kMinimal + "fp8: false\n", "r.yaml");
  EXPECT_FALSE(off.fp8);
  EXPECT_EQ(off.dtype, ComputeType::Float32);
  EXPECT_FALSE(parse_recipe(kMinimal + "bf16: true\n", "r.yaml").fp8);
  EXPECT_THAT(message_of(kMinimal + "fp8: true\nfp16: true\n"),
              HasSubstr("keys 'fp8' (line 4) and 'fp16' (line 5) disagree"));
  // The command line's key is kept, and conflicts with fp8.
  try {
    parse_recipe(kMinimal + "fp8: true\n", "r.yaml", {"dtype=float32"});
    ADD_FAILURE() << "fp8 beside float32";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("keys 'fp8' and 'dtype'"));
  }
}

TEST(AliasKeysTest, DeepSpeedValuesReachNativeKeys) {
  const Recipe recipe =
      parse_recipe(kMinimal +
                       "deepspeed:\n"
                       "  train_micro_batch_size_per_gpu: 3\n"
                       "  gradient_accumulation_steps: auto\n"
                       "  gradient_clipping: 0.7\n"
                       "  bf16: {enabled: true}\n"
                       "  scheduler:\n"
                       "    type: WarmupDecayLR\n"
                       "    params: {warmup_num_steps: 5, total_num_steps: auto, warmup_min_lr: 0}\n",
                   "r.yaml");
  EXPECT_EQ(recipe.micro_batch_size, 3);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 1);
  EXPECT_DOUBLE_EQ(recipe.max_grad_norm, 0.7);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_EQ(recipe.lr_scheduler, ScheduleKind::WarmupDecayLr);
  EXPECT_EQ(recipe.warmup_steps, 5);
  EXPECT_EQ(recipe.lr_warmup_type, RampKind::Log);
  EXPECT_EQ(recipe.key_places.at("micro_batch_size").line, 5);
}

TEST(AliasKeysTest, ADeepSpeedScheduleHasDeepSpeedsDefaults) {
  const auto schedule = [](const std::string& text) { return "deepspeed: {scheduler: {" + text + "}}\n"; };
  const Recipe bare = parse_recipe(kMinimal + schedule("type: WarmupCosineLR"), "r.yaml");
  EXPECT_EQ(bare.lr_scheduler, ScheduleKind::WarmupCosineLr);
  EXPECT_EQ(bare.warmup_steps, 1000);
  EXPECT_EQ(bare.lr_warmup_type, RampKind::Log);
  EXPECT_EQ(bare.cosine_min_lr_ratio, 1e-4);
  const Recipe told = parse_recipe(
      kMinimal + schedule("type: WarmupLR, params: {warmup_num_steps: 7, warmup_type: linear}"), "r.yaml");
  EXPECT_EQ(told.lr_scheduler, ScheduleKind::WarmupLr);
  EXPECT_EQ(told.warmup_steps, 7);
  EXPECT_EQ(told.lr_warmup_type, RampKind::Linear);
  EXPECT_EQ(told.cosine_min_lr_ratio, 0.0);
  // Transformers fills in "auto" itself, from keys of its own.
  EXPECT_FALSE(parse_recipe(kMinimal + schedule("type: WarmupLR, params: {warmup_num_steps: auto}"), "r.yaml")
                   .warmup_steps.has_value());
  EXPECT_THAT(warnings_of(kMinimal + schedule("type: WarmupDecayLR")),
              HasSubstr("DeepSpeed's default for warmup_max_lr is 0.001"));
  // A recipe that names the schedule of Transformers keeps it, and hears what differs.
  const std::string own =
      kMinimal + "lr_scheduler: linear\nwarmup_steps: 9\n" + schedule("type: WarmupDecayLR");
  EXPECT_EQ(parse_recipe(own, "r.yaml").lr_scheduler, ScheduleKind::Linear);
  EXPECT_EQ(parse_recipe(own, "r.yaml").warmup_steps, 9);
  EXPECT_THAT(warnings_of(own), HasSubstr("the schedule is that of the recipe, lr_scheduler: linear"));
  EXPECT_THAT(message_of(kMinimal + "lr_scheduler: warmup_lr\nlr_warmup_type: cosine\n"),
              HasSubstr("need linear or log"));
  EXPECT_THAT(message_of(kMinimal + "lr_scheduler: wsd\nlr_warmup_type: log\n"),
              HasSubstr("only DeepSpeed's schedules accept log"));
}

TEST(AliasKeysTest, TheStepsOfADeepSpeedScheduleAreThoseOfTheRun) {
  const std::string schedule =
      "deepspeed: {scheduler: {params: {warmup_type: linear, total_num_steps: 100}}}\n";
  EXPECT_EQ(parse_recipe(kMinimal + schedule, "r.yaml").max_steps, 100);
  EXPECT_THAT(warnings_of(kMinimal + schedule),
              HasSubstr("'deepspeed.scheduler.params.total_num_steps' ends the run: max_steps: 100"));
  EXPECT_EQ(warnings_of(kMinimal + schedule + "max_steps: 100\n"), "");
  EXPECT_THAT(message_of(kMinimal + "max_steps: 7\n" + schedule), HasSubstr("E-CONFIG-CONFLICT"));
}

TEST(AliasKeysTest, ErrorsNameTheKeyAsItWasWritten) {
  EXPECT_THAT(
      message_of(kMinimal + "deepspeed:\n  gradient_clipping: lots\n"),
      HasSubstr(
          "r.yaml:5:22: key 'deepspeed.gradient_clipping': wrong type; got the text 'lots', need a number"));
  EXPECT_THAT(message_of(kMinimal + "parallelism_config:\n  parallelism_config_dp_shard_size: x\n"),
              HasSubstr("key 'parallelism_config.parallelism_config_dp_shard_size': wrong type"));
  EXPECT_THAT(message_of(kMinimal + "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n"),
              HasSubstr("E-CONFIG-UNSUPPORTED]: r.yaml:4:39: key 'fsdp_config.fsdp_sharding_strategy'"));
  EXPECT_THAT(message_of(kMinimal + "deepspeed: {optimizer: {params: {betas: [0.9]}}}\n"),
              HasSubstr("a list of 2 or 3 numbers"));
}

TEST(AliasKeysTest, RefusesWhatWouldChangeResults) {
  EXPECT_EQ(message_of(kMinimal + "load_in_4bit: true\n"),
            "error[E-CONFIG-CONFLICT]: r.yaml:4:1: key 'load_in_4bit': quantised weights cannot be trained "
            "themselves; need adapter: qlora or adapter: lora. hint: leave it out to train all weights");
  EXPECT_EQ(message_of(kMinimal + "adapter: lora\nlora_target_parameters: [a]\nlora_dropout: 0.1\n"),
            "error[E-CONFIG-CONFLICT]: r.yaml:6:1: keys 'lora_dropout' and 'lora_target_parameters' exclude "
            "each other. hint: PEFT adds the factors of experts to their weights, and has no more for them");
  EXPECT_THAT(
      message_of(kMinimal + "adapter: loha\n"),
      HasSubstr("key 'adapter': 'loha': not supported yet; need lora, none, qlora, ia3, ln_tuning, vera, "
                "prompt_tuning"));
  for (const char* line :
       {"float16: true", "fp8_recipe: rowwise", "peft_init_lora_weights: eva",
        "peft_layer_replication: [[0, 2]]", "rl: grpo", "pretraining_sample_concatenation: false",
        "qat: {weight_dtype: int8}", "optimizer: dion", "chat_template: llava",
        "deepspeed: {zero_optimization: {zero_quantized_nontrainable_weights: true}}",
        "deepspeed: {optimizer: {type: Muon}}", "deepspeed: {scheduler: {type: OneCycle}}"}) {
    EXPECT_THAT(message_of(kMinimal + line + '\n'), HasSubstr("error[E-CONFIG-UNSUPPORTED]: r.yaml:4:"))
        << line;
  }
  for (const char* entry : {"type: llama2_chat", "type: bradley_terry.llama3.icr", "type: 'alpaca:vicuna'",
                            "type: my.module", "input_transform: f"}) {
    EXPECT_THAT(
        message_of("base_model: m\nlearning_rate: 1\ndatasets: [{path: d, " + std::string(entry) + "}]\n"),
        HasSubstr("error[E-CONFIG-UNSUPPORTED]: r.yaml:3:"))
        << entry;
  }
}

TEST(AliasKeysTest, TokensAreAListOrAnOldNameOfSpecialTokens) {
  EXPECT_EQ(parse_recipe(kMinimal + "tokens: ['<x>', '<y>']\n", "r.yaml").tokens,
            (std::vector<std::string>{"<x>", "<y>"}));
  EXPECT_EQ(parse_recipe(kMinimal + "tokens:\n", "r.yaml").tokens, std::vector<std::string>{});
  EXPECT_EQ(parse_recipe(kMinimal + "tokens: {bos_token: '<s>'}\n", "r.yaml").special_tokens.at("bos_token"),
            "<s>");
  EXPECT_THAT(message_of(kMinimal + "tokens: {begin_token: '<s>'}\n"), HasSubstr("begin_token"));
  const Recipe more = parse_recipe(
      kMinimal + "special_tokens: {pad_token: '<p>', additional_special_tokens: [a, b]}\n", "r.yaml");
  EXPECT_EQ(more.additional_special_tokens, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(more.special_tokens, (std::map<std::string, std::string>{{"pad_token", "<p>"}}));
}

TEST(AliasKeysTest, ValuesOfTheModelsConfigurationAreJson) {
  const std::string text =
      kMinimal +
      "overrides_of_model_config: {rope_theta: 1e6, output_router_logits: yes, act: gelu}\n"
      "rope_scaling: {rope_type: yarn, factor: 4, short: [1, 2.5], note: 'x', none: null}\n";
  const Recipe recipe = parse_recipe(text, "r.yaml");
  const std::map<std::string, std::string> want = {
      {"act", "\"gelu\""},
      {"output_router_logits", "true"},
      {"rope_scaling", R"({"rope_type":"yarn","factor":4,"short":[1,2.5],"note":"x","none":null})"},
      {"rope_theta", "1000000.0"}};
  EXPECT_EQ(recipe.model_config, want);
  // A recipe that is written and read again says the same.
  EXPECT_EQ(parse_recipe(dump_recipe(recipe), "again.yaml").model_config, want);
}

TEST(AliasKeysTest, WeightsThatAreDequantisedAreNoQuantisedOnes) {
  const std::string config = "model_quantization_config: Mxfp4Config\n";
  EXPECT_EQ(warnings_of(kMinimal + config + "model_quantization_config_kwargs: {dequantize: true}\n"), "");
  EXPECT_THAT(message_of(kMinimal + config), HasSubstr("{dequantize: true}"));
  EXPECT_THAT(message_of(kMinimal + config + "model_quantization_config_kwargs: {dequantize: false}\n"),
              HasSubstr("quantised weights are not supported yet"));
}

TEST(AliasKeysTest, VariablesOfTemplatesMayBeOfAnyKind) {
  const auto variables =
      parse_recipe(kMinimal + "chat_template_kwargs: {enable_thinking: no, n: 3, word: 'a'}\n", "r.yaml")
          .chat_template_kwargs;
  EXPECT_EQ(variables.at("enable_thinking"), "false");
  EXPECT_EQ(variables.at("n"), "3");
  EXPECT_EQ(variables.at("word"), "a");
}

TEST(AliasKeysTest, ReadsWhichLayersAnAdapterChanges) {
  const std::string lora = kMinimal + "adapter: lora\nlora_target_linear: true\n";
  const Recipe recipe = parse_recipe(lora +
                                         "lora_exclude_modules: '.*down_proj'\npeft_layers_to_transform: 3\n"
                                         "peft_layers_pattern: layers\nlora_rank_pattern:\n  q_proj: 4\n"
                                         "  .*[.]mlp[.].*: 2\nlora_alpha_pattern: {k_proj: 1.5}\n"
                                         "lora_dora: true\npeft_init_lora_weights: pissa_niter_4\n",
                                     "r.yaml");
  EXPECT_EQ(recipe.lora_exclude_regex, ".*down_proj");
  EXPECT_EQ(recipe.peft_layers_to_transform, std::vector<int64_t>{3});
  EXPECT_EQ(recipe.peft_layers_pattern, std::vector<std::string>{"layers"});
  const NamePatterns<int64_t> ranks = {{"q_proj", 4}, {".*[.]mlp[.].*", 2}};
  EXPECT_EQ(recipe.lora_rank_pattern, ranks) << "in the order of the file";
  EXPECT_EQ(recipe.lora_alpha_pattern, (NamePatterns<double>{{"k_proj", 1.5}}));
  EXPECT_TRUE(recipe.peft_use_dora);
  EXPECT_EQ(recipe.peft_init_lora_weights, "pissa_niter_4");
  const Recipe again = parse_recipe(dump_recipe(recipe), "again.yaml");
  EXPECT_EQ(again.lora_rank_pattern, ranks);
  EXPECT_EQ(again.lora_exclude_regex, ".*down_proj");

  EXPECT_EQ(parse_recipe(lora + "peft_init_lora_weights: false\n", "r.yaml").peft_init_lora_weights, "false");
  const std::pair<const char*, const char*> wrong[] = {
      {"lora_rank_pattern: {q_proj: 0}\n", "key 'lora_rank_pattern.q_proj': out of range"},
      {"lora_rank_pattern: [q_proj]\n", "a map from names of layers to numbers"},
      {"peft_init_lora_weights: pissa_niter_x\n", "need pissa_niter_<1 to 1000>"},
      {"peft_init_lora_weights: orthogonal\n", "write pissa, olora, gaussian or true"},
      {"lora_bias: true\npeft_use_dora: true\n", "'lora_bias' and 'peft_use_dora' exclude each other"},
      {"lora_exclude_modules: [a]\nlora_exclude_regex: b\n", "exclude each other"}};
  for (const auto& [keys, message] : wrong) EXPECT_THAT(message_of(lora + keys), HasSubstr(message)) << keys;
  EXPECT_THAT(
      message_of(kMinimal + "adapter: lora\nlora_target_modules: .*proj\npeft_layers_to_transform: 1\n"),
      HasSubstr("'peft_layers_to_transform' and 'lora_target_regex' exclude each other"));
}

TEST(AliasKeysTest, KindsOfAdaptersHaveKeysOfTheirOwn) {
  const std::string ia3 = kMinimal + "adapter: ia3\nlora_target_modules: [k_proj, down_proj]\n";
  const Recipe recipe = parse_recipe(ia3 + "ia3_feedforward_modules: [down_proj]\n", "r.yaml");
  EXPECT_EQ(recipe.adapter, AdapterKind::Ia3);
  EXPECT_EQ(recipe.ia3_feedforward_modules, std::vector<std::string>{"down_proj"});
  EXPECT_THAT(message_of(ia3 + "peft_layers_to_transform: [1]\n"),
              HasSubstr("'peft_layers_to_transform' and 'adapter: ia3' exclude each other"));
  const Recipe vera =
      parse_recipe(kMinimal + "adapter: vera\nlora_target_linear: true\nvera_r: 64\n", "r.yaml");
  EXPECT_EQ(vera.adapter, AdapterKind::Vera);
  EXPECT_EQ(vera.vera_r, 64);
  EXPECT_THAT(message_of(kMinimal + "adapter: vera\n"), HasSubstr("vera has no layers to adapt"));
  const Recipe prompt = parse_recipe(kMinimal + "adapter: prompt_tuning\nnum_virtual_tokens: 8\n", "r.yaml");
  EXPECT_EQ(prompt.num_virtual_tokens, 8);
  EXPECT_THAT(message_of(kMinimal + "adapter: prompt_tuning\nprompt_tuning_init: text\n"),
              HasSubstr("no text to begin with; need prompt_tuning_init_text"));
  EXPECT_THAT(message_of(kMinimal + "adapter: prompt_tuning\nlora_target_modules: [q_proj]\n"),
              HasSubstr("keys 'lora_target_modules' and 'adapter: prompt_tuning' exclude each other"));
  const std::string norms = kMinimal + "adapter: ln_tuning\n";
  EXPECT_EQ(parse_recipe(norms, "r.yaml").adapter, AdapterKind::LnTuning);
  EXPECT_THAT(message_of(norms + "lora_modules_to_save: [lm_head]\n"),
              HasSubstr("'lora_modules_to_save' and 'adapter: ln_tuning' exclude each other"));
}

TEST(AliasKeysTest, AnAdapterLeavesNoParameterUnfrozen) {
  const std::string patterns = "unfrozen_parameters: ['^lm_head.weight$', model.norm]\n";
  EXPECT_EQ(parse_recipe(kMinimal + patterns, "r.yaml").unfrozen_parameters,
            (std::vector<std::string>{"^lm_head.weight$", "model.norm"}));
  EXPECT_THAT(message_of(kMinimal + patterns + "adapter: lora\nlora_target_linear: true\n"),
              HasSubstr("'unfrozen_parameters' and 'adapter' exclude each other"));
}

TEST(AliasKeysTest, PretrainingDatasetIsAStreamOfDocuments) {
  const std::string head = "base_model: m\nlearning_rate: 1\nmax_steps: 9\n";
  for (const char* value : {"corpus", "{path: corpus}", "[{path: corpus}]", "[corpus]",
                            "[{path: corpus, type: }]", "[{path: corpus, type: pretrain}]"}) {
    const Recipe recipe = parse_recipe(head + "pretraining_dataset: " + value + '\n', "r.yaml");
    EXPECT_TRUE(recipe.streaming) << value;
    ASSERT_EQ(recipe.datasets.size(), 1U) << value;
    EXPECT_EQ(recipe.datasets[0].path, "corpus") << value;
    EXPECT_EQ(recipe.datasets[0].type, "pretrain") << value;
  }
  const Recipe recipe =
      parse_recipe(head +
                       "pretraining_dataset:\n  - {path: a, text_column: body, skip: 7, weight: 3, "
                       "weight_from_step: {100: 1.5}}\n  - {path: b, type: completion}\n"
                       "pretrain_multipack_buffer_size: 50\nz_loss: 1e-4\n",
                   "r.yaml");
  ASSERT_EQ(recipe.datasets.size(), 2U);
  EXPECT_EQ(recipe.datasets[0].field, "body");
  EXPECT_EQ(recipe.datasets[0].skip, 7);
  EXPECT_EQ(recipe.datasets[0].weight_from_step.at("100"), "1.5");
  EXPECT_EQ(recipe.datasets[1].type, "completion");
  EXPECT_EQ(recipe.streaming_multipack_buffer_size, 50);
  EXPECT_EQ(recipe.z_loss_coef, 1e-4);
  EXPECT_EQ(recipe.key_places.at("datasets.1.path").line, 6) << "where errors point";
  // Only one list of training data is allowed.
  EXPECT_THAT(message_of(kMinimal + "pretraining_dataset: x\n"), HasSubstr("E-CONFIG-CONFLICT"));
}

TEST(AliasKeysTest, StreamsRefuseWhatNeedsAllRows) {
  const std::string head = "base_model: m\nlearning_rate: 1\npretraining_dataset: x\n";
  EXPECT_THAT(message_of(head), HasSubstr("need the number of steps"));
  for (const char* line :
       {"val_set_size: 0.1", "dataset_exact_deduplication: true", "mix_temperature: 2",
        "save_strategy: epoch", "group_by_length: true", "mix_strategy: interleave_under"}) {
    EXPECT_THAT(message_of(head + "max_steps: 5\n" + line + '\n'),
                HasSubstr("and 'streaming: true' exclude each other"))
        << line;
  }
  // If max_steps is set, the whole run stands for the number of epochs.
  const Recipe recipe = parse_recipe(
      head + "max_steps: 100\nnum_epochs: 2\nsaves_per_epoch: 3\nevals_per_epoch: 1\n", "r.yaml");
  EXPECT_EQ(recipe.save_steps, 17);
  EXPECT_EQ(recipe.save_strategy, Cadence::Steps);
  EXPECT_EQ(recipe.eval_steps, 50);
  EXPECT_EQ(recipe.saves_per_epoch, 0);
}

TEST(AliasKeysTest, ADatasetMayRestOnlyUntilAStep) {
  const std::string head = "base_model: m\nlearning_rate: 1\nmax_steps: 5\ndatasets: [{path: d, weight: 0";
  EXPECT_THAT(message_of(head + "}]\n"), HasSubstr("key 'datasets.0.weight': too small"));
  EXPECT_EQ(parse_recipe(head + ", weight_from_step: {3: 1}}]\n", "r.yaml").datasets[0].weight, 0.0);
  for (const char* weights :
       {"{0: 1}", "{1.5: 1}", "{x: 1}", "{3: -1}", "{3: much}", "{3: .nan}", "{3: .inf}"}) {
    EXPECT_THAT(message_of(head + ", weight_from_step: " + weights + "}]\n"),
                HasSubstr("key 'datasets.0.weight_from_step' is a map from steps to weights"))
        << weights;
  }
}

TEST(AliasKeysTest, WeightsByStepRefuseWhatNeedsEpochs) {
  const std::string head =
      "base_model: m\nlearning_rate: 1\ndatasets: [{path: d, weight_from_step: {5: 1}}]\n";
  EXPECT_THAT(message_of(head), HasSubstr("need the number of steps"));
  EXPECT_EQ(parse_recipe(head + "max_steps: 5\n", "r.yaml").datasets[0].weight_from_step.size(), 1U);
  for (const char* line :
       {"evals_per_epoch: 1", "mix_temperature: 2", "saves_per_epoch: 2", "save_strategy: epoch",
        "group_by_length: true", "mix_strategy: interleave_under"}) {
    EXPECT_THAT(message_of(head + "max_steps: 5\n" + line + '\n'),
                HasSubstr("and 'datasets.0.weight_from_step' exclude each other"))
        << line;
  }
}

// A line of example_keys.txt.
struct ExampleKey {
  std::string kind, assignment;
  std::vector<std::string> context;  // further assignments that the key needs

  std::string path() const { return assignment.substr(0, assignment.find('=')); }
};

std::vector<ExampleKey> example_keys() {
  std::ifstream file(testing::source_folder() + "/tests/config/example_keys.txt");
  std::vector<ExampleKey> keys;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    ExampleKey& key = keys.emplace_back();
    std::istringstream words(line);
    words >> key.kind >> std::ws;
    std::getline(words, key.assignment, '|');
    for (std::string more; std::getline(words, more, '|');) key.context.push_back(more);
  }
  return keys;
}

// Returns the recipe as text, or the reason for which it is refused; and the warnings.
std::pair<std::string, std::string> outcome(const std::vector<std::string>& overrides) {
  std::string text;
  ::testing::internal::CaptureStderr();
  try {
    text = dump_recipe(parse_recipe(kMinimal, "r.yaml", overrides));
  } catch (const Error& error) {
    text = error.what();
  }
  return {text, ::testing::internal::GetCapturedStderr()};
}

TEST(ExampleKeysTest, EachBecomesWhatItsLineSays) {
  const std::vector<ExampleKey> keys = example_keys();
  ASSERT_GT(keys.size(), 300U);
  for (const ExampleKey& key : keys) {
    const auto before = outcome(key.context).first;
    std::vector<std::string> overrides = key.context;
    overrides.push_back(key.assignment);
    const auto [text, told] = outcome(overrides);
    SCOPED_TRACE(key.kind + ' ' + key.assignment + "\n" + told + text.substr(0, text.find('\n')));
    const bool is_accepted = text.rfind("error[", 0) != 0;
    if (key.kind == "refused") {
      EXPECT_THAT(text, HasSubstr("error[E-CONFIG-UNSUPPORTED]"));
    } else if (key.kind == "unknown") {
      EXPECT_THAT(text, HasSubstr("error[E-CONFIG-UNKNOWN-KEY]"));
    } else if (key.kind == "done" || key.kind == "checked") {
      EXPECT_TRUE(is_accepted);
      EXPECT_NE(text, before) << "nothing has changed";
    } else if (key.kind == "warned") {
      EXPECT_TRUE(is_accepted);
      EXPECT_THAT(told, HasSubstr("key '" + key.path() + "'"));
    } else if (key.kind == "told") {
      EXPECT_EQ(text, before);
      EXPECT_THAT(told, HasSubstr("accepted without effect: " + key.path()));
    } else {
      EXPECT_EQ(key.kind, "quiet");
      EXPECT_EQ(text, before);
      EXPECT_EQ(told, "");
    }
  }
}

// Tells whether the page has the name, or one that ends in * and begins like it.
bool is_in(const std::string& page, const std::string& name) {
  if (page.find('`' + name + '`') != std::string::npos) return true;
  for (size_t length = 1; length < name.size(); ++length) {
    if (page.find('`' + name.substr(0, length) + "*`") != std::string::npos) return true;
  }
  return false;
}

TEST(ExampleKeysTest, ThePageTellsOfEach) {
  std::ifstream file(testing::source_folder() + "/docs/recipe-keys.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto has_keys_of_its_own = [](const std::string& map) {
    const auto all = sections();
    return std::any_of(all.begin(), all.end(), [&](const Section& one) { return one.path == map; });
  };
  for (const ExampleKey& key : example_keys()) {
    if (key.kind == "unknown") continue;
    const std::string path = key.path(), top = path.substr(0, path.find('.'));
    EXPECT_TRUE(is_in(page, top)) << path;
    if (top == path || !has_keys_of_its_own(top)) continue;
    // The page may have the last part of the path, or the map that it is a value of.
    const size_t dot = path.rfind('.'), before = path.rfind('.', dot - 1);
    std::string last = path.substr(dot + 1);
    const std::string map = path.substr(before == std::string::npos ? 0 : before + 1, dot - before - 1);
    const size_t prefix = section(top).strip_prefix.size();
    if (prefix > 0 && last.starts_with(section(top).strip_prefix)) last = last.substr(prefix);
    EXPECT_TRUE(is_in(page, last) || (before != std::string::npos && is_in(page, map)) ||
                key.kind == "refused")
        << path;
  }
}

TEST(AliasKeysTest, QuantisedBasesInEverySpelling) {
  const std::string lora = kMinimal + "lora_target_linear: true\n";
  for (const char* text :
       {"adapter: qlora\n", "adapter: lora\nload_in_4bit: true\n", "adapter: qlora\nload_in_4bit: true\n",
        "adapter: lora\nbnb_config_kwargs: {load_in_4bit: true}\n"}) {
    const Recipe recipe = parse_recipe(lora + text, "r.yaml");
    EXPECT_EQ(recipe.adapter, AdapterKind::Lora) << text;
    EXPECT_TRUE(recipe.load_in_4bit && recipe.bnb_4bit_use_double_quant) << text;
    EXPECT_EQ(recipe.bnb_4bit_quant_type, FourBitType::Nf4) << text;
  }
  const Recipe recipe = parse_recipe(
      lora +
          "adapter: qlora\nbnb_config_kwargs: {bnb_4bit_use_double_quant: false, bnb_4bit_quant_type: "
          "fp4, llm_int8_skip_modules: [o_proj]}\nbnb_4bit_compute_dtype: bfloat16\n",
      "r.yaml");
  EXPECT_FALSE(recipe.bnb_4bit_use_double_quant);
  EXPECT_EQ(recipe.bnb_4bit_quant_type, FourBitType::Fp4);
  EXPECT_THAT(recipe.llm_int8_skip_modules, ::testing::ElementsAre("o_proj"));
  EXPECT_THAT(message_of(lora + "adapter: qlora\nload_in_4bit: false\n"),
              HasSubstr("keys 'adapter: qlora' and 'load_in_4bit: false' exclude each other"));
  EXPECT_THAT(message_of(lora + "adapter: lora\nload_in_4bit: true\nload_in_8bit: true\n"),
              HasSubstr("keys 'load_in_4bit' and 'load_in_8bit' exclude each other"));
  EXPECT_THAT(message_of(lora + "adapter: qlora\nfp8: true\n"), HasSubstr("keys 'fp8' and 'load_in_4bit'"));
}

// Checks the tables themselves: a line that names a missing key or value would otherwise only show when it
// is used.
TEST(ForeignKeysTest, TablesNameNativeKeysAndTheirValues) {
  std::set<std::string_view> natives;
  for (const auto& key : recipe_keys()) EXPECT_TRUE(natives.insert(key.name).second) << key.name;
  std::set<std::string_view> dataset_natives;
  for (const auto& key : dataset_keys()) EXPECT_TRUE(dataset_natives.insert(key.name).second) << key.name;
  for (const Section& section : sections()) {
    const auto& targets = section.path == "datasets" ? dataset_natives : natives;
    std::set<std::string_view> names;
    for (const ForeignKey& key : section.keys) {
      EXPECT_TRUE(names.insert(key.name).second) << section.path << ' ' << key.name << " is there twice";
      const bool shadows = (section.path.empty() || section.path == "datasets") && targets.contains(key.name);
      EXPECT_FALSE(shadows) << key.name << " is native";
      if (key.rule == Rule::Rename || key.rule == Rule::Map || key.rule == Rule::Hint) {
        EXPECT_TRUE(targets.contains(key.target)) << section.path << ' ' << key.name;
      }
      if (key.rule == Rule::Enter) {
        EXPECT_NO_THROW(tessera::config::section(key.target)) << key.name;
      }
      if (key.rule == Rule::Refuse || key.rule == Rule::Ignore || key.rule == Rule::Quiet) {
        EXPECT_FALSE(key.target.empty()) << key.name << " has no reason";
      }
      if (key.rule != Rule::Map || section.path == "datasets") continue;
      std::stringstream values{std::string(key.values)};
      for (std::string pair; values >> pair;) {
        const std::string ours = pair.substr(pair.find('=') + 1);
        if (ours.empty() || ours == "!") continue;
        const std::vector<std::string> overrides = {std::string(key.target) + '=' + ours,
                                                    "lora_target_linear=true",
                                                    key.target == "load_in_4bit" ? "adapter=lora" : "seed=1"};
        EXPECT_NO_THROW(parse_recipe(kMinimal, "r.yaml", overrides)) << key.name << ' ' << pair;
      }
    }
  }
}

TEST(ForeignKeysTest, EveryPrefixIsReachable) {
  for (const Section& section : sections()) {
    for (const ForeignKey& key : section.keys) {
      if (!key.name.ends_with('*')) continue;
      const std::string name = std::string(key.name.substr(0, key.name.size() - 1)) + 'x';
      const ForeignKey* found = find_foreign(section, name);
      ASSERT_NE(found, nullptr) << name;
      EXPECT_EQ(found->name, key.name) << name;
    }
  }
  EXPECT_THAT(message_of(kMinimal + "dsv4_fp8_experts: true\n"), HasSubstr("quantised weights"));
  EXPECT_THAT(message_of(kMinimal + "dsv4_fp4_grouped_mode: true\n"), HasSubstr("quantised weights"));
  EXPECT_EQ(warnings_of(kMinimal + "dsv4_indexer: true\n"), "");
}

TEST(AliasKeysTest, AnUnknownValueIsNotAnUnbuiltOne) {
  EXPECT_EQ(message_of(kMinimal + "bf16: treu\n"),
            "error[E-CONFIG-VALUE]: r.yaml:4:7: key 'bf16': unknown value; got the text 'treu', need true, "
            "auto, full, "
            "false. hint: did you mean 'true'?");
  EXPECT_THAT(
      message_of(kMinimal + "deepspeed: {optimizer: {type: AdmaW}}\n"),
      HasSubstr("unknown value; got the text 'AdmaW', need adamw, adam, sgd, lamb, lion, adagrad. hint: "
                "did you mean 'adamw'?"));
  EXPECT_THAT(
      message_of(kMinimal + "deepspeed: {optimizer: {type: OneBitAdam}}\n"),
      HasSubstr(
          "E-CONFIG-UNSUPPORTED]: r.yaml:4:31: key 'deepspeed.optimizer.type': this value is not supported"));
}

TEST(AliasKeysTest, SettingsThatAreOffAreFine) {
  const std::string text =
      kMinimal +
      "load_in_4bit: false\nload_in_8bit: no\ntensor_parallel_size: 1\ncontext_parallel_size: '1'\n"
      "fp16:\nfp16_: \n";
  EXPECT_THAT(message_of(text), HasSubstr("unknown key 'fp16_'"));
  EXPECT_EQ(
      warnings_of(
          kMinimal +
          "load_in_4bit: false\ntensor_parallel_size: 1\nfp16:\nneftune_noise_alpha:\nrl:\nadapter:\n"
          "flash_attention: true\nxformers_attention:\nattn_implementation: sdpa\nlora_mlp_kernel: true\n"
          "strict: false\nwandb_project:\nhub_model_id:\npad_to_sequence_len: true\nplugins: []\n"
          "resume_from_checkpoint:\nauto_resume_from_checkpoints: false\nfsdp:\nfsdp_config:\ndeepspeed:\n"
          "deepspeed_config: {offload_optimizer_device: none}\n"),
      "");
}

TEST(AliasKeysTest, KeysThatOnlySayHowToExecuteAreFine) {
  EXPECT_EQ(
      warnings_of(kMinimal +
                  "use_kernels: true\nexperts_implementation: grouped_mm\ntiled_mlp: true\n"
                  "tiled_mlp_num_shards: 4\nfused_attn_kernel: true\nuse_ray: true\nray_num_workers: 4\n"
                  "resources_per_worker: {GPU: 1}\ntorch_dtype: bfloat16\nflash_attention: true\n"
                  "sdp_attention: true\nlora_mlp_kernel: true\n"
                  "torch_compile_backend: inductor\nliger_rms_norm: true\nuse_scattermoe: true\n"
                  "use_sonicmoe: false\nllama4_linearized_experts: true\ndeepcompile: true\ntf32: true\n"
                  "experimental_skip_move_to_device: true\ntorchdistx_path:\nmodel_type: LlamaForCausalLM\n"
                  "tokenizer_type: AutoTokenizer\ndevice_map: auto\n"
                  "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
                  "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
                  "  - axolotl.integrations.kernels.KernelsPlugin\n"),
      "");
}

TEST(AliasKeysTest, WhatAsksForNothingIsFine) {
  for (const char* key :
       {"use_kernels", "processor_type", "rl", "trl", "ebft", "mora", "diffusion", "unfrozen_parameters",
        "plugins", "model_quantization_config", "reward_model", "torchdistx_path", "eot_tokens",
        "nemo_gym_enabled", "spectrum_top_fraction", "use_pose", "vllm", "image_size"}) {
    for (const char* value : {"", "false", "~", "[]", "{}"}) {
      EXPECT_EQ(warnings_of(kMinimal + key + ": " + value + "\n"), "") << key << ' ' << value;
    }
  }
}

TEST(AliasKeysTest, PluginsThatChangeResultsAreRefused) {
  for (const char* name : {"axolotl.integrations.kd.KDPlugin",
                           "axolotl.integrations.diffusion.DiffusionPlugin", "my_code.MyPlugin"}) {
    EXPECT_THAT(
        message_of(kMinimal + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n  - " + name + "\n"),
        HasSubstr("E-CONFIG-UNSUPPORTED]: r.yaml:6:5: key 'plugins'"))
        << name;
  }
  EXPECT_THAT(message_of(kMinimal + "model_type: AutoModelForQuestionAnswering\n"),
              HasSubstr("this kind of model is not supported yet"));
  EXPECT_THAT(message_of(kMinimal + "num_labels: 2\n"), HasSubstr("only a classifier has labels"));
}

// Returns a JSON file with the keys of the ZeRO files that Axolotl ships.
std::string zero_json(const std::string& stage, const std::string& more) {
  return "{\n \"zero_optimization\": {\n  \"stage\": " + stage + more +
         "\n },\n \"bf16\": {\"enabled\": true},\n"
         " \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",\n"
         " \"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
         " \"wall_clock_breakdown\": false, \"zero_allow_untested_optimizer\": true,\n"
         " \"zero_force_ds_cpu_optimizer\": false\n}\n";
}
const std::string kZero3 =
    ",\n  \"overlap_comm\": true, \"contiguous_gradients\": true, \"sub_group_size\": 0,\n"
    "  \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": \"auto\",\n"
    "  \"stage3_param_persistence_threshold\": \"auto\", \"max_live_parameters\": 0,\n"
    "  \"max_reuse_distance\": 0, \"gather_16bit_weights_on_model_save\": true";
const std::string kOffloadCpu =
    ",\n  \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true},\n"
    "  \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}";

class DeepSpeedFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const { return here.write("zero.json", text); }
  const tessera::testing::TempFolder here;
};

TEST_F(DeepSpeedFileTest, TheUsualZeroFilesAreAccepted) {
  const std::string fp16 =
      ",\n  \"overlap_comm\": true\n },\n \"fp16\": {\"enabled\": \"auto\", \"auto_cast\": false, "
      "\"loss_scale\": 0, \"initial_scale_power\": 32, \"loss_scale_window\": 1000, \"hysteresis\": 2, "
      "\"min_loss_scale\": 1";
  for (const auto& [text, stage] :
       {std::pair{zero_json("1", fp16), ZeroStage::Zero1}, std::pair{zero_json("2", fp16), ZeroStage::Zero2},
        std::pair{zero_json("3", kZero3), ZeroStage::Zero3},
        std::pair{zero_json("3", kZero3 + kOffloadCpu), ZeroStage::Zero3},
        std::pair{zero_json("\"auto\"", kZero3), ZeroStage::Zero3}}) {
    const std::string lines = kMinimal + "bf16: auto\ndeepspeed: " + write(text) + "\n";
    EXPECT_EQ(warnings_of(lines), "") << text;
    EXPECT_EQ(parse_recipe(lines, "r.yaml").zero_stage, stage);
    EXPECT_EQ(parse_recipe(lines, "r.yaml").dtype, ComputeType::BFloat16);
  }
  EXPECT_THAT(warnings_of(kMinimal + "deepspeed: " + write(zero_json("2", kOffloadCpu + fp16)) + "\n"),
              HasSubstr("'offload_param_device' saves less memory without 'zero_stage: 3'"));
}

TEST_F(DeepSpeedFileTest, MessagesNameTheFileItsLineAndItsKey) {
  const std::string path = write(
      "{\n \"zero_optimization\": {\n  \"stage\": 3,\n"
      "  \"offload_param\": {\"device\": \"nvme\"},\n  \"max_live_paramaters\": 1\n },\n"
      " \"aio\": {\"block_size\": 1}\n}\n");
  const std::string message = message_of(kMinimal + "sead: 1\ndeepspeed: " + path + "\n");
  EXPECT_THAT(message, HasSubstr(path + ":4:31: key 'zero_optimization.offload_param.device': 'nvme': "
                                        "offloading to a drive is not supported yet; write cpu"));
  EXPECT_THAT(message,
              HasSubstr(path + ":5:3: unknown key 'zero_optimization.max_live_paramaters'. hint: did "
                               "you mean 'max_live_parameters'?"));
  EXPECT_THAT(message, HasSubstr("r.yaml:4:1: unknown key 'sead'"));

  write("{\n \"zero_optimization\": {\"stage\": 2},\n \"communication_data_type\": \"fp16\"\n}\n");
  EXPECT_EQ(warnings_of(kMinimal + "mlflow_tags: x\ndeepspeed: " + path + "\n"),
            "tessera: warning: r.yaml: accepted without effect: mlflow_tags (line 4)\n"
            "tessera: warning: " +
                path + ": accepted without effect: communication_data_type (line 3)\n");
}

TEST(AliasKeysTest, OptimizerStatesOnTheHostInEverySpelling) {
  const auto device_of = [](const std::string& lines) {
    EXPECT_EQ(warnings_of(kMinimal + lines), "") << lines;
    return parse_recipe(kMinimal + lines, "r.yaml").offload_optimizer_device;
  };
  for (const std::string lines :
       {"offload_optimizer_device: cpu\n", "deepspeed_config: {offload_optimizer_device: cpu}\n",
        "deepspeed: {zero_optimization: {offload_optimizer: {device: cpu, pin_memory: "
        "true, buffer_count: 4}}}\n",
        "deepspeed: {zero_optimization: {cpu_offload: true}}\n"}) {
    EXPECT_EQ(device_of(lines), OffloadDevice::Cpu) << lines;
  }
  for (const std::string lines :
       {"", "offload_optimizer_device: none\n", "fsdp_config: {offload_params: false}\n",
        "deepspeed: {zero_optimization: {offload_param: {device: cpu}}}\n",
        "deepspeed: {zero_optimization: {offload_optimizer: {device: none}}}\n"}) {
    EXPECT_EQ(device_of(lines), OffloadDevice::None) << lines;
  }
  EXPECT_THAT(warnings_of(kMinimal + "offload_optimizer_device: cpu\noptimizer: sgd\n"),
              HasSubstr("'offload_optimizer_device' has no effect with 'optimizer: sgd'"));
}

TEST(AliasKeysTest, OptimizerStatesOnADriveInEverySpelling) {
  for (const std::string lines :
       {"offload_optimizer_device: nvme\noffload_optimizer_nvme_path: /d\noffload_optimizer_buffer_count: 6\n"
        "aio_block_size: 8192\naio_queue_depth: 3\n",
        "deepspeed: {zero_optimization: {sub_group_size: 1e9, offload_optimizer: {device: nvme, nvme_path: "
        "/d, "
        "buffer_count: 6, pin_memory: true, pipeline_read: true, pipeline_write: true, fast_init: false, "
        "ratio: "
        "1.0}}, aio: {block_size: 8192, queue_depth: 3, thread_count: 1, intra_op_parallelism: 1, "
        "single_submit: "
        "false, overlap_events: true}}\n"}) {
    EXPECT_EQ(warnings_of(kMinimal + lines), "") << lines;
    const Recipe recipe = parse_recipe(kMinimal + lines, "r.yaml");
    EXPECT_EQ(recipe.offload_optimizer_device, OffloadDevice::Nvme) << lines;
    EXPECT_EQ(recipe.offload_optimizer_nvme_path, "/d") << lines;
    EXPECT_EQ(recipe.offload_optimizer_buffer_count, 6) << lines;
    EXPECT_EQ(recipe.aio_block_size, 8192) << lines;
    EXPECT_EQ(recipe.aio_queue_depth, 3) << lines;
  }
  EXPECT_EQ(
      parse_recipe(
          kMinimal + "deepspeed_config: {offload_optimizer_device: nvme, offload_optimizer_nvme_path: /d}\n",
          "r.yaml")
          .offload_optimizer_nvme_path,
      "/d");
  // Every optimizer can; one without states has nothing to put there.
  const std::string drive = kMinimal + "offload_optimizer_device: nvme\n",
                    there = "offload_optimizer_nvme_path: /d\n";
  for (const std::string optimizer : {"lion_32bit", "muon", "adamw_8bit", "came_pytorch", "ademamix"})
    EXPECT_EQ(warnings_of(drive + there + "adam_beta2: 0.98\noptimizer: " + optimizer + "\n"), "")
        << optimizer;
  EXPECT_THAT(warnings_of(drive + there + "optimizer: sgd\n"),
              HasSubstr("'offload_optimizer_device' has no effect with 'optimizer: sgd'"));
  EXPECT_THAT(message_of(drive), HasSubstr("'nvme' needs a folder; need offload_optimizer_nvme_path"));
  EXPECT_THAT(message_of(drive + there + "aio_block_size: 5000\n"),
              HasSubstr("key 'aio_block_size': no whole number of a drive's blocks; got 5000"));
  EXPECT_THAT(message_of(drive + there + "offload_param_device: cpu\n"),
              HasSubstr("the states of parameters on the host lie there, too"));
  EXPECT_THAT(warnings_of(drive + there + "deepspeed: {aio: {use_gds: true}}\n"), HasSubstr("use_gds"));
}

TEST(AliasKeysTest, TypesOfTheResult) {
  const auto type_of = [](const std::string& lines) {
    return parse_recipe(kMinimal + lines, "r.yaml").save_dtype;
  };
  EXPECT_EQ(type_of(""), SaveType::OfBase);
  EXPECT_EQ(type_of("save_dtype: auto\n"), SaveType::OfBase);
  EXPECT_EQ(type_of("save_dtype: fp32\n"), SaveType::Float32);
  EXPECT_EQ(type_of("save_dtype: bfloat16\n"), SaveType::BFloat16);
  EXPECT_EQ(type_of("save_dtype: float16\n"), SaveType::Float16);
  EXPECT_THAT(message_of(kMinimal + "save_dtype: int8\n"), HasSubstr("key 'save_dtype': unknown value"));
}

TEST(AliasKeysTest, OptimizerStatesInBfloat16InEverySpelling) {
  const auto type_of = [](const std::string& lines) {
    EXPECT_EQ(warnings_of(kMinimal + lines), "") << lines;
    return parse_recipe(kMinimal + lines, "r.yaml").optimizer_state_dtype;
  };
  for (const std::string lines : {"optimizer_state_dtype: bfloat16\n", "optimizer_state_dtype: bf16\n",
                                  "deepspeed: {bf16: {enabled: true, bf16_optimizer_states: true}}\n"}) {
    EXPECT_EQ(type_of(lines), StateType::BFloat16) << lines;
  }
  for (const std::string lines : {"", "optimizer_state_dtype: float32\n", "optimizer_state_dtype: fp32\n",
                                  "bf16: true\n", "deepspeed: {bf16: {bf16_optimizer_states: false}}\n"}) {
    EXPECT_EQ(type_of(lines), StateType::OfWeights) << lines;
  }
  EXPECT_THAT(message_of(kMinimal + "optimizer_state_dtype: fp8\n"),
              HasSubstr("not supported yet; write bfloat16"));
  EXPECT_THAT(message_of(kMinimal + "optimizer_state_dtype: float16\n"), HasSubstr("write bfloat16"));
  EXPECT_THAT(message_of(kMinimal + "optimizer_state_dtype: int8\n"),
              HasSubstr("r.yaml:4:24: key 'optimizer_state_dtype': unknown value"));
  EXPECT_THAT(message_of(kMinimal + "optimizer_state_dtype: float32\n"
                                    "deepspeed: {bf16: {bf16_optimizer_states: true}}\n"),
              HasSubstr("optimizer_state_dtype"));
  for (const std::string key : {"exp_avg_dtype", "exp_avg_sq_dtype", "opt_m_dtype", "opt_v_dtype",
                                "bf16_stochastic_round", "bf16_optimizer_states"}) {
    EXPECT_THAT(message_of(kMinimal + key + ": bf16\n"), HasSubstr("did you mean 'optimizer_state_dtype'?"));
  }
  EXPECT_THAT(message_of(kMinimal + "optimizer: adamw_anyprecision\n"),
              HasSubstr("optimizer_state_dtype: bfloat16"));
  EXPECT_THAT(warnings_of(kMinimal + "optimizer_state_dtype: bf16\noptimizer: sgd\n"),
              HasSubstr("'optimizer_state_dtype' has no effect with 'optimizer: sgd'"));
}

TEST(AliasKeysTest, ParametersOnTheHostInEverySpelling) {
  const auto read = [](const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml"); };
  for (const std::string lines :
       {"offload_param_device: cpu\n", "fsdp_config: {offload_params: true}\n",
        "fsdp: full_shard auto_wrap offload\n", "fsdp: [full_shard, offload]\n",
        "deepspeed_config: {offload_param_device: cpu}\n",
        "deepspeed: {zero_optimization: {offload_param: {device: cpu, pin_memory: true}}}\n",
        "deepspeed: {zero_optimization: {cpu_offload_params: true}}\n"}) {
    EXPECT_EQ(warnings_of(kMinimal + lines), "") << lines;
    const Recipe recipe = read(lines);
    EXPECT_EQ(recipe.offload_param_device, OffloadDevice::Cpu) << lines;
    EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero3) << lines;
  }
  for (const std::string lines :
       {"", "offload_optimizer_device: cpu\n", "fsdp_config: {offload_params: false}\n", "fsdp: full_shard\n",
        "deepspeed: {zero_optimization: {offload_param: {device: none}}}\n"}) {
    EXPECT_EQ(read(lines).offload_param_device, OffloadDevice::None) << lines;
  }
  EXPECT_THAT(warnings_of(kMinimal + "fsdp: shard_grad_op offload\n"),
              HasSubstr("'offload_param_device' saves less memory without 'zero_stage: 3'"));
  EXPECT_THAT(message_of(kMinimal + "offload_param_device: nvme\n"),
              HasSubstr("offloading to a drive is not supported yet; write cpu"));
}

TEST(AliasKeysTest, ActivationsOnTheHostInEverySpelling) {
  const auto read = [](const std::string& lines) {
    EXPECT_EQ(warnings_of(kMinimal + lines), "") << lines;
    return parse_recipe(kMinimal + lines, "r.yaml");
  };
  for (const std::string value : {"true", "legacy", "hidden_states"}) {
    const Recipe recipe = read("activation_offloading: " + value + "\n");
    EXPECT_EQ(recipe.activation_offloading, Offloading::Host) << value;
    EXPECT_EQ(recipe.gradient_checkpointing, Checkpointing::Off) << value;
  }
  for (const std::string lines :
       {"gradient_checkpointing: offload\n", "gradient_checkpointing: unsloth\nactivation_offloading: true\n",
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {offload: true}\n"}) {
    const Recipe recipe = read(lines);
    EXPECT_EQ(recipe.activation_offloading, Offloading::Host) << lines;
    EXPECT_EQ(recipe.gradient_checkpointing, Checkpointing::Block) << lines;
  }
  EXPECT_EQ(read("gradient_checkpointing: true\n").activation_offloading, Offloading::Off);
  EXPECT_THAT(message_of(kMinimal + "activation_offloading: disk\n"),
              HasSubstr("offloading to a drive is not supported yet; write true"));
  EXPECT_THAT(message_of(kMinimal + "gradient_checkpointing: offload\nactivation_offloading: false\n"),
              HasSubstr("activation_offloading"));
}

TEST(AliasKeysTest, FsdpsCheckpointingStandsBesideTheSwitchThatIsOff) {
  EXPECT_EQ(parse_recipe(
                kMinimal + "gradient_checkpointing: false\nfsdp_config: {activation_checkpointing: true}\n",
                "r.yaml")
                .gradient_checkpointing,
            Checkpointing::Block);
  EXPECT_EQ(parse_recipe(
                kMinimal + "fsdp_config: {activation_checkpointing: true}\ngradient_checkpointing: false\n",
                "r.yaml")
                .gradient_checkpointing,
            Checkpointing::Block);
}

TEST(AliasKeysTest, NamesIgnoredKeysInOneWarning) {
  EXPECT_EQ(
      warnings_of(kMinimal + "mlflow_tags: x\nhub_token: y\nlm_eval_tasks: [a]\nsave_first_step: true\n"),
      "tessera: warning: r.yaml: accepted without effect: mlflow_tags (line 4), hub_token (line 5), "
      "lm_eval_tasks (line 6), save_first_step (line 7)\n");
}

TEST(AliasKeysTest, OlderSpellings) {
  const Recipe recipe = parse_recipe(
      "base_model: m\nlearning_rate: 1\neval_strategy: epoch\nval_set_size: 5\nadapter: lora\n"
      "lora_target_modules: all-linear\n"
      "datasets: [{path: d, type: chat_template, message_field_role: from, message_field_content: value}]\n",
      "r.yaml");
  EXPECT_EQ(recipe.eval_strategy, Cadence::Epoch);
  EXPECT_TRUE(recipe.lora_target_linear);
  EXPECT_EQ(recipe.datasets[0].message_property_mappings.at("role"), "from");
  EXPECT_EQ(recipe.datasets[0].message_property_mappings.at("content"), "value");
}

}  // namespace
}  // namespace tessera::config
