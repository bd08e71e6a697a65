#include "tessera/config/convert_recipe.h"

#include "tests/config/config_testing.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ConvertRecipeTest : public ::testing::Test {
 protected:
  // Converts the files and arguments, and returns the recipe that the result is read as. The result's text
  // is left in text_, and the warnings in told_.
  Recipe convert(const std::vector<std::string>& files, const std::string& arguments = "",
                 const std::vector<std::string>& more = {}) {
    ::testing::internal::CaptureStderr();
    text_ = convert_to_recipe(files, arguments);
    told_ = ::testing::internal::GetCapturedStderr();
    return parse_recipe(text_, "converted.yaml", more);
  }
  std::string refusal(const std::vector<std::string>& files, const std::string& arguments = "") {
    try {
      convert_to_recipe(files, arguments);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 2);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  const testing::TempFolder here_;
  std::string text_, told_;
};

TEST_F(ConvertRecipeTest, OneRecipeOfLlamaFactoryAndDeepSpeed) {
  here_.write("zero3.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
                                "train_micro_batch_size_per_gpu": "auto"})");
  const std::string text =
      "model_name_or_path: meta-llama/Llama-3\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
      "lora_rank: 8\nlora_target: all\ntemplate: llama3\ndataset: chats,instructions\ndataset_dir: " +
      (here_ / "data") +
      "\ncutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
      "learning_rate: 1.0e-4\nnum_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\n"
      "bf16: true\nddp_timeout: 180000000\nval_size: 0.1\neval_strategy: steps\neval_steps: 500\n"
      "resume_from_checkpoint: null\n";
  const std::string file = here_.write("sft.yaml", text);
  const Recipe recipe = convert({file, here_ / "zero3.json"});
  EXPECT_EQ(recipe.base_model, "meta-llama/Llama-3");
  EXPECT_EQ(recipe.adapter, AdapterKind::Lora);
  EXPECT_TRUE(recipe.lora_target_linear);
  EXPECT_EQ(recipe.lora_r, 8);
  EXPECT_EQ(recipe.sequence_len, 2048);
  EXPECT_EQ(recipe.micro_batch_size, 1);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 8);
  EXPECT_EQ(recipe.num_epochs, 3.0);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero3);
  EXPECT_EQ(recipe.val_set_size, 0.1);
  ASSERT_EQ(recipe.datasets.size(), 2u);
  EXPECT_EQ(recipe.datasets[0].path, here_ / "data/dataset_info.json");
  EXPECT_EQ(recipe.datasets[0].type, "llama_factory");
  EXPECT_EQ(recipe.datasets[0].name, "chats");
  EXPECT_EQ(recipe.datasets[1].name, "instructions");
  EXPECT_THAT(text_, AllOf(HasSubstr("# " + file + ":5 (lora_rank)"), Not(HasSubstr("# default\n"))));
  EXPECT_EQ(recipe.chat_template, "llama3");
}

TEST_F(ConvertRecipeTest, TemplatesOfLlamaFactoryThatWriteTheSame) {
  const auto template_of = [&](const std::string& name) {
    return convert({}, "--model_name_or_path m --dataset d --template " + name).chat_template;
  };
  EXPECT_EQ(template_of("qwen"), "qwen_25");
  EXPECT_EQ(template_of("phi"), "phi_35");
  EXPECT_EQ(template_of("yi"), "chatml");
  EXPECT_EQ(template_of("glm4"), Recipe().chat_template);
  EXPECT_THAT(told_, HasSubstr("accepted without effect: template"));
}

TEST_F(ConvertRecipeTest, TheArgumentsOfACommandLine) {
  const Recipe recipe = convert(
      {},
      "--model_name_or_path 'my model' --dataset_name trl-lib/Capybara --learning_rate 2.0e-4 "
      "--num_train_epochs=1 --packing --per_device_train_batch_size 2 --use_peft --lora_r 32 "
      "--lora_target_modules q_proj v_proj --max_steps -1 --eos_token '<|im_end|>'\\\n --report-to none");
  EXPECT_EQ(recipe.base_model, "my model");
  EXPECT_EQ(recipe.learning_rate, 2e-4);
  EXPECT_TRUE(recipe.sample_packing);
  EXPECT_EQ(recipe.adapter, AdapterKind::Lora);
  EXPECT_EQ(recipe.lora_target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(recipe.max_steps, 0);
  EXPECT_EQ(recipe.special_tokens.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(recipe.datasets.at(0).path, "trl-lib/Capybara");
  EXPECT_THAT(told_, HasSubstr("dataset 'trl-lib/Capybara'"));
  EXPECT_THAT(refusal({}, "--lr 1 2.0 x --lr 3"), HasSubstr("--lr is given twice"));
  EXPECT_THAT(refusal({}, "train.py --lr 1"), HasSubstr("'train.py' belongs to no argument"));
  EXPECT_THAT(refusal({}, "--a 'b"), HasSubstr("is not closed"));
  EXPECT_THAT(refusal({}, "--learning_rat 3"), HasSubstr("did you mean 'learning_rate'?"));
}

// Keys that are not written get the defaults of the tool, and comments say so.
TEST_F(ConvertRecipeTest, DefaultsAreThoseOfTheTool) {
  const std::vector<std::string> rest = {"base_model=m", "datasets.0.path=d"};
  const Recipe trl = convert({}, "--use_peft --max_steps 9", rest);
  EXPECT_EQ(trl.learning_rate, 2e-5);
  EXPECT_EQ(trl.micro_batch_size, 8);
  EXPECT_EQ(trl.lr_scheduler, ScheduleKind::Linear);
  EXPECT_EQ(trl.warmup_steps, 0.0);
  EXPECT_EQ(trl.sequence_len, 1024);
  EXPECT_EQ(trl.excess_length_strategy, ExcessLength::Truncate);
  EXPECT_EQ(trl.lora_r, 16);
  EXPECT_EQ(trl.lora_alpha, 32);
  EXPECT_EQ(trl.lora_dropout, 0.05);
  EXPECT_EQ(trl.gradient_checkpointing, Checkpointing::Block);
  EXPECT_THAT(text_, HasSubstr("# default of TRL\n"));
  EXPECT_THAT(told_, HasSubstr("TRL trains on whole conversations"));
  EXPECT_EQ(trl.dtype, ComputeType::BFloat16);
  EXPECT_EQ(convert({}, "--use_peft --bf16 False", rest).dtype, ComputeType::Float32);
  EXPECT_EQ(convert({}, "--use_peft --fp16", rest).dtype, ComputeType::Float16);
  const Recipe factory =
      convert({}, "--finetuning_type lora --lora_rank 4 --warmup_ratio 0.1 --val_size 0.1", rest);
  EXPECT_EQ(factory.learning_rate, 5e-5);
  EXPECT_EQ(factory.num_epochs, 3.0);
  EXPECT_EQ(factory.sequence_len, 2048);
  EXPECT_EQ(factory.lora_alpha, 8);
  EXPECT_FALSE(factory.warmup_steps.has_value());
  EXPECT_EQ(factory.eval_strategy, Cadence::No);
  const Recipe plain =
      convert({}, "--per_device_train_batch_size 2 --weight_decay 0.1 --full_determinism", rest);
  EXPECT_EQ(plain.micro_batch_size, 2);
  EXPECT_TRUE(plain.deterministic);
  EXPECT_EQ(plain.learning_rate, 5e-5);
  EXPECT_EQ(plain.sequence_len, Recipe().sequence_len);
  EXPECT_THAT(text_, HasSubstr("# default of Transformers\n"));
  // A file that is only about ranks brings no such defaults.
  const std::string ranks =
      here_.write("z.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})");
  convert({ranks}, "", {"base_model=m", "datasets.0.path=d", "learning_rate=1"});
  EXPECT_THAT(text_, Not(HasSubstr("default of")));
}

// Conversion would turn texts that are trained whole into prompts, which are masked.
TEST_F(ConvertRecipeTest, PretrainingOfLlamaFactoryIsRefused) {
  const std::string files = "--model_name_or_path m --dataset c4_demo --learning_rate 1e-4 ";
  EXPECT_THAT(refusal({}, files + "--stage pt"),
              AllOf(HasSubstr("key 'stage'"), HasSubstr("type: completion")));
  EXPECT_EQ(convert({}, files + "--stage sft").datasets.size(), 1U);
}

// Arguments of the libraries beyond those that the examples use are known too.
TEST_F(ConvertRecipeTest, ArgumentsOfTheLibraries) {
  const std::vector<std::string> rest = {"base_model=m", "datasets.0.path=d", "learning_rate=1"};
  const Recipe recipe = convert(
      {},
      "--finetuning_type full --use_v1_kernels --use_reentrant_gc --ray_num_workers 4 --infer_backend hf "
      "--eval_on_each_dataset --bf16_full_eval --average_tokens_across_devices True --no_cuda False "
      "--tensor_model_parallel_size 2 --pipeline_model_parallel_size 3 --expert_model_parallel_size 1 "
      "--use_distributed_optimizer --moe_aux_loss_coef 0.01 --disable_shuffling --early_stopping_steps 5 "
      "--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer --val_size 0.1 --eval_strategy epoch "
      "--push_to_hub_token x --truncation_mode keep_start",
      rest);
  EXPECT_EQ(recipe.tensor_parallel_size, 2);
  EXPECT_EQ(recipe.pipeline_parallel_size, 3);
  EXPECT_EQ(recipe.router_aux_loss_coef, 0.01);
  EXPECT_FALSE(recipe.shuffle_merged_datasets);
  EXPECT_EQ(recipe.early_stopping_patience, 5);
  EXPECT_THAT(refusal({}, "--finetuning_type full --default_system x"), HasSubstr("system messages"));
  EXPECT_THAT(refusal({}, "--finetuning_type full --new_special_tokens_config t.yaml"),
              HasSubstr("additional_special_tokens"));
  EXPECT_THAT(refusal({}, "--finetuning_type full --ref_model m"), HasSubstr("preference"));
  EXPECT_THAT(refusal({}, "--use_peft --truncation_mode keep_end"), HasSubstr("truncation_mode"));
  EXPECT_THAT(refusal({}, "--use_peft --datasets a b"), HasSubstr("mixture"));
}

// Transformers uploads only where push_to_hub says so.
TEST_F(ConvertRecipeTest, TheResultIsUploadedWhereTheArgumentsSaySo) {
  const std::vector<std::string> rest = {"base_model=m", "datasets.0.path=d", "learning_rate=1"};
  const Recipe recipe = convert(
      {}, "--push_to_hub True --hub_model_id org/name --hub_private_repo True --hub_strategy end", rest);
  EXPECT_TRUE(recipe.uploads());
  EXPECT_EQ(recipe.hub_model_id, "org/name");
  EXPECT_EQ(recipe.hub_private_repo, true);
  EXPECT_FALSE(convert({}, "--hub_model_id org/name --finetuning_type full", rest).uploads());
  EXPECT_FALSE(convert({}, "--push_to_hub False --hub_model_id org/name", rest).uploads());
}

TEST_F(ConvertRecipeTest, WhatIsSaidOfNamedDatasetsIsInTheirEntries) {
  const Recipe factory = convert({}, "--model_name_or_path m --dataset a,b --max_samples 500 --stage sft");
  ASSERT_EQ(factory.datasets.size(), 2U);
  EXPECT_EQ(factory.datasets[1].split, "train[:500]");
  const Recipe trl = convert(
      {},
      "--model_name_or_path m --dataset_name org/set --dataset_config de --dataset_train_split train_sft");
  EXPECT_EQ(trl.datasets.at(0).name, "de");
  EXPECT_EQ(trl.datasets.at(0).split, "train_sft");
  EXPECT_THAT(refusal({}, "--max_samples 3"), HasSubstr("needs 'dataset' next to it"));
  EXPECT_THAT(refusal({}, "--dataset_train_split x"), HasSubstr("needs 'dataset_name' next to it"));
}

// The inputs hold traps of YAML 1.1 and of shells.
TEST_F(ConvertRecipeTest, HabitsOfFilesAndCommandLines) {
  const std::string file =
      here_.write("lf.yaml",
                  "### model\nmodel_name_or_path: m\nfinetuning_type: lora\nlora_target: all\n"
                  "stage: sft\ndo_train: yes\ndataset: &names a\neval_dataset: *names\n"
                  "learning_rate: 2e-5\nlogging_steps: '10'\nrun_name: 2024-01-31\n"
                  "overwrite_cache: True\nmax_grad_norm: 1\nresume_from_checkpoint:\n"
                  "bf16: on\nreport_to: none\nsave_only_model: no\n");
  const Recipe recipe = convert({file});
  EXPECT_EQ(recipe.learning_rate, 2e-5);
  EXPECT_EQ(recipe.logging_steps, 10);
  EXPECT_EQ(recipe.wandb_name, "2024-01-31");
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_FALSE(recipe.save_only_model);
  EXPECT_EQ(recipe.test_datasets.at(0).name, "a");
  const auto refused = [&](const std::string& lines) {
    return refusal({here_.write("bad.yaml", "model_name_or_path: m\nnum_train_epochs: 1\n" + lines)});
  };
  EXPECT_THAT(refused("lora_rank: 010\nuse_peft: true\n"), HasSubstr("a whole number"));
  EXPECT_THAT(refused("seed: 1\nseed: 2\n"), HasSubstr("is given twice"));
  EXPECT_THAT(refused("bf16: maybe\n"), HasSubstr("unknown value"));
  const Recipe merged =
      convert({here_.write("merged.yaml",
                           "<<: &base {learning_rate: 3e-5, num_train_epochs: 2}\nmodel_name_or_path: m\n"
                           "num_train_epochs: 4\nlr_scheduler_type: linear\n")},
              "", {"datasets.0.path=d"});
  EXPECT_EQ(merged.learning_rate, 3e-5);
  EXPECT_EQ(merged.num_epochs, 4.0);
  const Recipe words = convert({},
                               "--model_name_or_path m --run_name 'a: [b' --optim None --bf16 True "
                               "--lr_scheduler_kwargs '{\"min_lr_rate\": 0.1}' "
                               "--lr_scheduler_type cosine_with_min_lr",
                               {"datasets.0.path=d"});
  EXPECT_EQ(words.wandb_name, "a: [b");
  EXPECT_EQ(words.dtype, ComputeType::BFloat16);
  EXPECT_EQ(words.cosine_min_lr_ratio, 0.1);
}

TEST_F(ConvertRecipeTest, AdaptersHaveTheTargetsThatTheToolWouldChoose) {
  const std::vector<std::string> rest = {"base_model=m", "datasets.0.path=d", "learning_rate=1"};
  EXPECT_EQ(convert({}, "--use_peft", rest).lora_target_modules,
            (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_THAT(told_, HasSubstr("q_proj and v_proj"));
  EXPECT_TRUE(convert({}, "--finetuning_type lora", rest).lora_target_linear);
  EXPECT_FALSE(convert({}, "--use_peft --lora_target_modules all-linear", rest).lora_target_modules.size() >
               0);
}

TEST_F(ConvertRecipeTest, AccelerateFilesLeaveTheRestToFillIn) {
  const std::string file = here_.write(
      "a.yaml",
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: false\nmixed_precision: bf16\nnum_processes: 4\n");
  const Recipe recipe = convert({file}, "", {"base_model=m", "datasets.0.path=d", "learning_rate=1"});
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero2);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_THAT(text_, AllOf(HasSubstr("# Required: base_model:"), HasSubstr("# Required: learning_rate:"),
                           HasSubstr("(fsdp_config.fsdp_reshard_after_forward)")));
}

TEST_F(ConvertRecipeTest, FilesMustAgree) {
  const std::string a = here_.write("a.yaml", "mixed_precision: bf16\n"),
                    b = here_.write("b.yaml", "num_train_epochs: 1\nfp16: true\n");
  EXPECT_THAT(refusal({a, b}), AllOf(HasSubstr("disagree"), HasSubstr("a.yaml:1")));
}

}  // namespace
}  // namespace tessera::config
